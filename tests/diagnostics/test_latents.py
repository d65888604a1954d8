"""The diagnosis must pass noise and name the assumption that fails."""

import json

import numpy as np
import pytest

from ncai.diagnostics.latent_diagnosis import with_enough_digits
from ncai.diagnostics.latents import diagnose_latents

NUM_ROWS = 300


def rng_of(seed=0):
    return np.random.default_rng(seed)


def diagnose(inputs, means, stds=0.5, prior_std=1.0, **kwargs):
    means = np.asarray(means, float).reshape(len(means), -1)
    stds = np.broadcast_to(stds, means.shape)
    targets = rng_of(99).normal(size=(len(means), 1))
    kwargs = {"num_permutations": 99} | kwargs
    return diagnose_latents(inputs, targets, means, stds, prior_std, **kwargs)


@pytest.fixture(scope="module")
def inputs():
    return rng_of(1).normal(size=(NUM_ROWS, 1))


def test_white_noise_passes(inputs):
    found = diagnose(inputs, rng_of(2).normal(size=NUM_ROWS), stds=0.1)
    assert not found.depends_on_inputs
    assert not found.differs_from_prior
    assert found.samples_match_prior
    assert "independent of x: MI" in found.independence_verdict
    assert "looks Gaussian" in found.prior_verdict
    assert found.std_ratio == pytest.approx(1, abs=0.15)
    assert found.pc_x <= found.pc_x_reference


def test_verdicts_may_be_on_samples(inputs):
    # Means that copy x, of a posterior so wide that its draws are white noise.
    white = rng_of(3).normal(size=(NUM_ROWS, 1))
    on_means = diagnose(inputs, 0.01 * inputs, stds=1.0, latent_samples=white)
    assert on_means.depends_on_inputs
    found = diagnose(
        inputs, 0.01 * inputs, stds=1.0, latent_samples=white, judged="samples"
    )
    assert not found.depends_on_inputs
    assert not found.differs_from_prior
    assert found.mi_x_mean == on_means.mi_x_mean
    assert found.mi_judged == found.mi_x_sample
    skewed = rng_of(3).exponential(size=(NUM_ROWS, 1)) - 1
    found = diagnose(inputs, white, stds=0.1, latent_samples=skewed, judged="samples")
    assert found.differs_from_prior
    assert found.prior_verdict.startswith("z differs from its prior: HZ ")


def test_verdicts_show_as_many_digits_as_tell_numberswith_enough_digits():
    assert with_enough_digits(0.01444, 0.01203) == ("0.014", "0.012")
    assert with_enough_digits(164.44, 1.1) == ("164.44", "1.10")
    assert with_enough_digits(0.5, 0.5) == ("0.50000", "0.50000")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"judged": "draws"}, "judged='draws' must be one of"),
        ({"latent_samples": np.zeros((3, 1))}, "latent_samples has shape"),
    ],
)
def test_impossible_options_are_refused(inputs, options, words):
    with pytest.raises(ValueError, match=words):
        diagnose(inputs, inputs, **options)


def test_latents_that_copy_the_inputs_fail_the_first_assumption_only(inputs):
    found = diagnose(inputs, inputs, stds=0.1)
    assert found.depends_on_inputs
    assert not found.differs_from_prior
    assert found.mi_p_value == pytest.approx(1 / 100)
    assert found.mi_x_sample < found.mi_x_mean
    assert found.pc_x == pytest.approx(1)
    assert found.independence_verdict.startswith("z depends on x: MI ")


def test_dependence_without_correlation_is_seen(inputs):
    found = diagnose(
        inputs, np.abs(inputs) + 0.3 * rng_of(2).normal(size=(NUM_ROWS, 1))
    )
    assert found.depends_on_inputs
    assert found.pc_x < 0.05


def test_skewed_latents_fail_the_second_assumption_only(inputs):
    found = diagnose(inputs, rng_of(2).exponential(size=NUM_ROWS) - 1, stds=0.05)
    assert not found.depends_on_inputs
    assert found.differs_from_prior
    assert not found.samples_match_prior
    assert found.hz > 10 * found.hz_reference > 10 * found.hz_expected
    assert found.prior_verdict.startswith("z differs from its prior: HZ ")


def test_two_clumps_whose_samples_match_are_told_apart_from_a_real_mismatch(inputs):
    # An exact posterior that knows the sign of z and little more.
    sign = np.sign(rng_of(3).normal(size=NUM_ROWS))
    found = diagnose(inputs, 0.6 * sign, stds=0.8)
    assert found.differs_from_prior
    assert found.samples_match_prior
    assert "samples of q(z) do match the prior" in found.prior_verdict


@pytest.mark.parametrize(
    ("width", "word"), [(0.3, "narrow"), (0.49, "narrow"), (2, "wide")]
)
def test_a_gaussian_of_another_width_is_not_like_its_prior(inputs, width, word):
    found = diagnose(inputs, width * rng_of(2).normal(size=NUM_ROWS), stds=0.01)
    assert found.means_are_gaussian
    assert not found.width_matches_prior
    assert found.differs_from_prior
    assert not found.samples_match_prior
    assert found.std_ratio == pytest.approx(width, rel=0.1)
    assert found.ks_p_value < 0.01
    assert "differs from its prior: Gaussian in shape" in found.prior_verdict
    assert f"too {word}; q(z) is" in found.prior_verdict


def test_one_narrow_dimension_is_not_made_up_for_by_a_wide_one(inputs):
    means = rng_of(2).normal(size=(NUM_ROWS, 2)) * [0.6, 1.28]
    found = diagnose(inputs, means, stds=0.01)
    assert found.std_ratio == pytest.approx(0.6, abs=0.06)
    assert found.differs_from_prior


def test_a_gaussian_in_another_place_is_not_like_its_prior(inputs):
    found = diagnose(inputs, 0.5 + rng_of(2).normal(size=NUM_ROWS), stds=0.01)
    assert found.means_are_gaussian
    assert found.width_matches_prior
    assert found.differs_from_prior
    assert "samples of q(z) lie elsewhere; KS 0." in found.prior_verdict


def test_the_limits_hold_for_noise_and_for_many_rows():
    few = diagnose(rng_of(1).normal(size=(20, 1)), rng_of(2).normal(size=20), stds=0.0)
    assert few.std_ratio_limits[1] == pytest.approx(1.2 + 1.96 / 40**0.5, abs=1e-3)
    # A tenth too narrow is within the tolerance, however sure we are of it.
    x, z = rng_of(1).normal(size=(5000, 1)), 0.9 * rng_of(2).normal(size=5000)
    many = diagnose(x, z, stds=0.0, max_rows=100, num_permutations=19)
    assert many.ks_sample_p_value < 0.01
    assert not many.differs_from_prior


@pytest.mark.parametrize("value", [0.0, 0.1])
@pytest.mark.parametrize("latent_dim", [1, 2])
@pytest.mark.parametrize("std", [0.0, 1.0])
def test_collapsed_latents_have_no_nan(inputs, value, latent_dim, std):
    found = diagnose(inputs, np.full((NUM_ROWS, latent_dim), value), stds=std)
    assert found.collapsed
    assert not found.depends_on_inputs
    for verdict in (found.independence_verdict, found.prior_verdict):
        assert verdict.startswith("z carries no information: all its means are equal")
    numbers = [v for v in found.to_dict().values() if isinstance(v, float)]
    assert not np.isnan(numbers).any()
    assert found.hz == 4 * NUM_ROWS
    assert "nan" not in str(found)


def test_one_dead_latent_of_two_is_named(inputs):
    means = np.c_[rng_of(2).normal(size=NUM_ROWS), np.zeros(NUM_ROWS)]
    found = diagnose(inputs, means)
    assert found.hz_singular
    assert not found.collapsed
    assert "do not span all 2 dimensions" in found.prior_verdict


def test_constant_inputs_change_nothing(inputs):
    means = rng_of(2).normal(size=NUM_ROWS)
    with_constant = np.c_[inputs, np.full(NUM_ROWS, 0.1)]
    plain, wide = diagnose(inputs, means), diagnose(with_constant, means)
    assert wide.mi_x_mean == pytest.approx(plain.mi_x_mean, abs=1e-3)
    assert wide.pc_x == pytest.approx(plain.pc_x / 2)
    only_constant = diagnose(np.full((NUM_ROWS, 1), 0.1), means)
    assert not only_constant.depends_on_inputs
    assert only_constant.mi_x_mean == 0


def test_many_rows_are_subsampled_and_it_is_said():
    x = rng_of(4).normal(size=(500, 2))
    means = rng_of(5).normal(size=(500, 2))
    found = diagnose(x, means, max_rows=100, num_permutations=19)
    assert (found.num_rows, found.num_rows_used) == (500, 100)
    assert "100 of them" in str(found)
    again = diagnose(x, means, max_rows=100, num_permutations=19)
    assert found == again
    other = diagnose(x, means, max_rows=100, num_permutations=19, seed=1)
    assert found.mi_x_mean != other.mi_x_mean
    assert found.hz == other.hz


@pytest.mark.parametrize(("level", "num_permutations"), [(0.9, 9), (0.95, 39)])
def test_references_and_p_values_agree(inputs, level, num_permutations):
    for seed in range(20):
        means = rng_of(seed).normal(size=40) + 0.4 * inputs[:40, 0]
        found = diagnose(
            inputs[:40], means, level=level, num_permutations=num_permutations
        )
        above = found.mi_x_mean > found.mi_reference
        assert above == found.depends_on_inputs
        assert (found.hz_p_value >= 1 - level) == found.means_are_gaussian


def test_the_level_is_kept_under_noise():
    # 60 trials at 10 %: 6 expected, deviation 2.3; four of them.
    hits = 0
    for seed in range(60):
        rng = rng_of(seed)
        found = diagnose(
            rng.normal(size=(40, 2)),
            rng.normal(size=40),
            num_permutations=19,
            level=0.9,
            seed=seed,
        )
        hits += found.depends_on_inputs
    assert hits <= 15


def test_output_as_dict_and_text(inputs):
    found = diagnose(inputs, rng_of(2).normal(size=NUM_ROWS))
    values = json.loads(json.dumps(found.to_dict()))
    assert values["depends_on_inputs"] is False
    assert values["independence_verdict"] == found.independence_verdict
    text = str(found)
    assert text.endswith(found.prior_verdict)
    assert f"{found.hz:.4g}" in text
    assert "noise, 95%" in text


@pytest.mark.parametrize("judged", ["means", "samples"])
def test_the_text_says_what_is_judged(judged, inputs):
    found = diagnose(inputs, rng_of(2).normal(size=NUM_ROWS), judged=judged)
    lines = str(found).splitlines()
    assert f"Judged by {'draws' if judged == 'samples' else 'means'} of z" in lines[-3]
    # Beside what is not judged there is no level to compare it with.
    (hz,) = [line for line in lines if line.startswith("HZ(mean z)")]
    assert (f"{found.hz_reference:.4g}" in hz) == (judged == "means")
    for name, shown in (("mean", "means"), ("sampled", "samples")):
        (mi,) = [line for line in lines if line.startswith(f"MI(x; {name} z)")]
        assert (f"{found.mi_reference:.4g}" in mi) == (judged == shown)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_permutations": 10}, "num_permutations"),
        ({"level": 1.0}, "level"),
        ({"max_rows": 2}, "max_rows"),
    ],
)
def test_settings_that_cannot_work_are_refused(inputs, change, match):
    with pytest.raises(ValueError, match=match):
        diagnose(inputs, inputs, **change)


def test_arrays_that_do_not_match_are_refused(inputs):
    with pytest.raises(ValueError, match="same rows"):
        diagnose(inputs[:-1], inputs)
    with pytest.raises(ValueError, match="latent_means"):
        diagnose(inputs, np.full((NUM_ROWS, 1), np.nan))
