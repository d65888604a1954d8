"""Model files: what is written comes back, and nothing else is taken for a model."""

import json
import os
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from helpers import data, fitted, fitted_plain, old_file, tiny, tiny_plain
from ncai import MLP, NCAI, BNNLVRegressor, BNNRegressor, HMCMarginal, ModelFileError
from ncai.estimators import persistence as files
from ncai.runtime.atomic_write import check_writable


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.safetensors"


@pytest.fixture
def saved(path):
    fitted().save(path)
    return path


def rewrite(path, change_header=None, change_arrays=None):
    """The same file with another header or other arrays, and without a checksum."""
    with safe_open(path, framework="numpy") as handle:
        metadata = handle.metadata()
        arrays = {name: handle.get_tensor(name) for name in handle.keys()}
    header = json.loads(metadata["ncai"])
    header.pop(files.CHECKSUM, None)
    if change_header is not None:
        header = change_header(header)
    if change_arrays is not None:
        change_arrays(arrays)
    save_file(arrays, path, metadata={"ncai": json.dumps(header)})


def assert_same_predictions(one, other):
    x, y = data()
    np.testing.assert_array_equal(
        one.predict_dist(x).log_prob(y), other.predict_dist(x).log_prob(y)
    )
    np.testing.assert_array_equal(one.predict(x), other.predict(x))


# ----- There and back -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("inference", "changes"),
    [
        ("mfvi", {}),
        ("mfvi", {"keep": "equal"}),
        ("mfvi", {"noise_variance": 0.1}),
        ("map", {}),
        ("hmc_marginal", {}),
    ],
)
def test_every_kind_of_posterior_comes_back(inference, changes, path):
    model = fitted(inference, **changes)
    model.save(path)
    loaded = BNNLVRegressor.load(path)
    assert_same_predictions(model, loaded)
    assert type(loaded.posterior_) is type(model.posterior_)
    np.testing.assert_array_equal(loaded.posterior_.shares, model.posterior_.shares)
    x, y = data(5, seed=9)
    np.testing.assert_array_equal(
        loaded.latent_posterior(x, y).mean, model.latent_posterior(x, y).mean
    )


def test_settings_and_reports_come_back(saved):
    model, loaded = fitted(), BNNLVRegressor.load(saved)
    assert loaded.get_params() == model.get_params()
    assert loaded.random_state == 0
    assert loaded.settings_ == model.settings_
    for name in ("stop_reasons_", "n_iter_", "fit_seconds_", "seed_", "score_name_"):
        assert getattr(loaded, name) == getattr(model, name)
    np.testing.assert_array_equal(loaded.restart_scores_, model.restart_scores_)
    assert loaded.n_features_in_ == 1


def test_a_samplers_report_comes_back(path, tmp_path):
    model = fitted("hmc_marginal")
    model.save(path)
    loaded = BNNLVRegressor.load(path)
    assert loaded.sampler_report_ == model.sampler_report_
    assert not loaded.sampler_report_.mixed
    assert str(loaded.sampler_report_) == str(model.sampler_report_)
    again = tmp_path / "again"
    loaded.save(again)
    assert BNNLVRegressor.load(again).sampler_report_ == model.sampler_report_

    # JSON has no infinity; and files were written before they held the report.
    def stuck(header):
        found = header["sampler_report"] | {"max_rhat": "inf"}
        return header | {"sampler_report": found}

    rewrite(path, stuck)
    assert BNNLVRegressor.load(path).sampler_report_.max_rhat == float("inf")
    rewrite(path, lambda h: {k: v for k, v in h.items() if k != "sampler_report"})
    older = BNNLVRegressor.load(path)
    assert older.sampler_report_ is None
    assert_same_predictions(model, older)


def test_methods_that_do_not_sample_have_no_report(saved):
    assert BNNLVRegressor.load(saved).sampler_report_ is None


def test_sampled_latents_that_do_not_fit_the_rows_are_damage(path):
    fitted("hmc").save(path, include_training=True)

    def shorten(arrays):
        cut = arrays["samples.latents"][:, :, 1:]
        arrays["samples.latents"] = np.ascontiguousarray(cut)

    rewrite(path, change_arrays=shorten)
    with pytest.raises(ModelFileError, match=r"samples\.latents has shape"):
        BNNLVRegressor.load(path)


def test_a_loaded_model_saves_again(saved, tmp_path):
    again = tmp_path / "again"
    BNNLVRegressor.load(saved).save(again)
    assert_same_predictions(fitted(), BNNLVRegressor.load(again))


def test_infinite_tolerances_and_generators_can_be_saved(path):
    model = tiny(
        "ncai",
        input_tolerance=float("inf"),
        noise_variance=np.array([0.1]),
        hidden=np.array([8]),
        random_state=np.random.RandomState(0),
    ).fit(*data())
    model.save(path)
    loaded = BNNLVRegressor.load(path)
    assert loaded.inference.input_tolerance == float("inf")
    assert loaded.hidden == (8,)
    assert loaded.random_state is None
    assert_same_predictions(model, loaded)


def test_a_plain_network_comes_back(path):
    fitted_plain().save(path)
    assert_same_predictions(fitted_plain(), BNNRegressor.load(path))
    # The class that can hold both reads both.
    assert type(BNNLVRegressor.load(path)) is BNNRegressor


def test_training_rows_come_back_if_asked_for(path):
    model = fitted()
    model.save(path, include_training=True)
    loaded = BNNLVRegressor.load(path)
    np.testing.assert_array_equal(loaded.train_index_, model.train_index_)
    np.testing.assert_array_equal(
        loaded.latent_posterior_.mean, model.latent_posterior_.mean
    )
    np.testing.assert_array_equal(
        loaded.training_rows_.inputs, model.training_rows_.inputs
    )
    found = loaded.diagnose(num_permutations=40)
    assert found == model.diagnose(num_permutations=40)
    loaded.save(path, include_training=True)


def test_without_training_rows_diagnose_says_what_is_missing(saved):
    loaded = BNNLVRegressor.load(saved)
    assert loaded.latent_posterior_ is None
    with pytest.raises(ValueError, match="include_training=True"):
        loaded.diagnose()
    with pytest.raises(ValueError, match="without them"):
        loaded.save(saved, include_training=True)


def test_a_file_is_small_and_holds_no_rows(path):
    model = tiny().fit(*data(2000))
    model.save(path)
    assert path.stat().st_size < 8000
    model.save(path, include_training=True)
    assert path.stat().st_size > 2000 * 4 * 4


def test_feature_names_survive(path):
    x, y = data()
    frame = pd.DataFrame(x, columns=["height"])
    model = tiny_plain().fit(frame, y)
    model.save(path)
    loaded = BNNRegressor.load(path)
    assert loaded.feature_names_in_.tolist() == ["height"]
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="width"):
        loaded.predict(frame.rename(columns={"height": "width"}))


def test_a_file_holds_no_pickle(saved):
    content = saved.read_bytes()
    size = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + size])
    assert isinstance(json.loads(entries.pop("__metadata__")["ncai"]), dict)
    assert {entry["dtype"] for entry in entries.values()} <= {"F32", "F64", "I64"}


# ----- Networks of one's own ----------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """y = a x + b z + c."""

    def init(self, key, input_dim, latent_dim, output_dim):
        del key
        return {
            "a": jnp.full((input_dim, output_dim), 0.1),
            "b": jnp.full((latent_dim, output_dim), 0.1),
            "c": jnp.zeros(output_dim),
        }

    def apply(self, weights, inputs, latents):
        return inputs @ weights["a"] + latents @ weights["b"] + weights["c"]


def test_a_network_of_ones_own_must_be_given_again(path):
    model = tiny(network=Line(), hidden=None, max_steps=50).fit(*data())
    model.save(path)
    with pytest.raises(ModelFileError, match=r"Line\(\).*load\(path, network=\.\.\.\)"):
        BNNLVRegressor.load(path)
    loaded = BNNLVRegressor.load(path, network=Line())
    assert loaded.network == Line()
    assert_same_predictions(model, loaded)
    with pytest.raises(ModelFileError, match="holds 3 weights; this network has 33"):
        BNNLVRegressor.load(path, network=MLP((8,)))


def test_a_given_mlp_is_known_without_help(path):
    model = tiny(network=MLP((8,), "tanh"), hidden=None).fit(*data())
    model.save(path)
    loaded = BNNLVRegressor.load(path)
    assert loaded.network == MLP((8,), "tanh")
    assert_same_predictions(model, loaded)


# ----- Files that are no models -------------------------------------------------------


def assert_one_sentence(error, path):
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    assert message.endswith(".")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        bytes(np.random.default_rng(0).integers(0, 256, 2000, dtype=np.uint8)),
        b"x,y\n1,2\n",
        b"\x80\x04\x95",
    ],
    ids=["empty", "one byte", "random", "csv", "pickle"],
)
def test_another_kind_of_file_is_refused(content, path):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="not a readable ncai model") as error:
        BNNLVRegressor.load(path)
    assert_one_sentence(error, path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(share, saved):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ModelFileError, match="damaged") as error:
        BNNLVRegressor.load(saved)
    assert_one_sentence(error, saved)


def test_a_flipped_bit_is_seen_wherever_it_is(saved):
    content = saved.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")  # of the tensors
    for place in (start, (start + len(content)) // 2, len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 0x40
        saved.write_bytes(flipped)
        with pytest.raises(ModelFileError, match=r"damaged.*checksum") as error:
            BNNLVRegressor.load(saved)
        assert_one_sentence(error, saved)
    # A number in the header, where it is still a header.
    saved.write_bytes(content.replace(b'max_steps\\": 300', b'max_steps\\": 301'))
    with pytest.raises(ModelFileError, match="checksum"):
        BNNLVRegressor.load(saved)


def test_a_file_without_a_checksum_is_read_if_its_numbers_are_finite(saved):
    rewrite(saved)
    assert_same_predictions(fitted(), BNNLVRegressor.load(saved))

    def spoil(arrays):
        arrays["mean.weights"] = np.full_like(arrays["mean.weights"], np.nan)

    rewrite(saved, change_arrays=spoil)
    with pytest.raises(ModelFileError, match=r"mean\.weights holds NaN") as error:
        BNNLVRegressor.load(saved)
    assert_one_sentence(error, saved)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"format": "pt"},
        {"ncai": "{broken"},
        {"ncai": "[1, 2]"},
        {"ncai": "{}"},
        {"ncai": '{"format": "ncai-model", "version": "x"}'},
    ],
)
def test_a_foreign_safetensors_file_is_refused(metadata, path):
    save_file({"weights": np.zeros(3)}, path, metadata=metadata)
    with pytest.raises(ModelFileError, match="not one that ncai wrote") as error:
        BNNLVRegressor.load(path)
    assert_one_sentence(error, path)


def test_another_format_is_refused(saved):
    rewrite(saved, lambda header: header | {"format": "ncai-study"})
    with pytest.raises(ModelFileError, match="holds 'ncai-study'"):
        BNNLVRegressor.load(saved)


def test_a_newer_version_is_refused(saved):
    newer = {"version": files.FORMAT_VERSION + 1, "ncai": "9.0"}
    rewrite(saved, lambda header: header | newer)
    with pytest.raises(ModelFileError, match=r"written by ncai 9\.0.*upgrade") as error:
        BNNLVRegressor.load(saved)
    assert_one_sentence(error, saved)


@pytest.mark.parametrize(
    "name", ["mean.weights", "scale.log_noise_var", "priors.noise_variance", "shares"]
)
def test_a_missing_tensor_is_named(name, saved):
    rewrite(saved, change_arrays=lambda arrays: arrays.pop(name))
    with pytest.raises(ModelFileError, match=f"lacks part of a model.*{name}") as error:
        BNNLVRegressor.load(saved)
    assert_one_sentence(error, saved)


@pytest.mark.parametrize(
    "name", ["mean.weights", "scale.weights", "input_shift", "priors.noise_variance"]
)
def test_a_tensor_of_another_shape_is_named(name, saved):
    def cut(arrays):
        arrays[name] = np.ascontiguousarray(arrays[name][..., :0])

    rewrite(saved, change_arrays=cut)
    with pytest.raises(ModelFileError, match=f"damaged: {name} has shape") as error:
        BNNLVRegressor.load(saved)
    assert_one_sentence(error, saved)


@pytest.mark.parametrize(
    "change",
    [
        {"estimator": "os.system"},
        {"params": [1, 2]},
        {"params": {"no_such_argument": 1}},
        {"settings": {}},
        {"dims": "abc"},
        {"dims": [1]},
        {"mlp": {"hidden": [8], "activation": "none such"}},
        {"mlp": None},
        {"restart_scores": ["a"]},
    ],
    ids=str,
)
@pytest.mark.usefixtures("any_types")
def test_a_header_with_nonsense_is_refused(change, saved):
    rewrite(saved, lambda header: header | change)
    with pytest.raises(ModelFileError) as error:
        BNNLVRegressor.load(saved)
    assert_one_sentence(error, saved)


def test_a_latent_model_is_no_plain_one(saved):
    with pytest.raises(ModelFileError, match=r"load it with BNNLVRegressor\.load"):
        BNNRegressor.load(saved)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model file at"):
        BNNLVRegressor.load(tmp_path / "none")
    with pytest.raises(IsADirectoryError, match="is a folder, not a model file"):
        BNNLVRegressor.load(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"folder .*none does not exist"):
        fitted().save(tmp_path / "none" / "model")
    with pytest.raises(IsADirectoryError, match=r"cannot write .*: it is a folder\."):
        fitted().save(tmp_path)
    monkeypatch.chdir(tmp_path)
    for error, reason in [
        (PermissionError(13, "Permission denied", ".m.1f"), "is not yours to change"),
        (FileNotFoundError(2, "No such file", ".m.1f"), "takes no new files"),
        (OSError(28, "No space left", ".m.1f"), "No space left"),
    ]:

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(files.Path, "write_bytes", fail)
        monkeypatch.setattr(files.Path, "touch", fail)
        for write in (fitted().save, lambda name: check_writable(files.Path(name))):
            with pytest.raises(type(error), match=reason) as found:
                write("m.ncai")
            message = str(found.value)
            assert message.startswith("cannot write m.ncai: ")
            assert message.endswith(".")
            assert ".m.1f" not in message
            assert found.value.errno == error.errno
            assert (str(tmp_path) in message) == ("folder" in message)
    monkeypatch.undo()
    check_writable(tmp_path / "m.ncai")
    assert not list(tmp_path.iterdir())


# ----- Writing ------------------------------------------------------------------------


def test_an_existing_file_is_replaced(path):
    path.write_bytes(b"old")
    fitted().save(str(path))
    assert_same_predictions(fitted(), BNNLVRegressor.load(str(path)))
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("moment", ["write", "rename"])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    error, moment, saved, monkeypatch
):
    before = saved.read_bytes()

    def half_written(path, content):
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
        raise error

    def no_rename(old, new):
        raise error

    if moment == "write":
        monkeypatch.setattr(files.Path, "write_bytes", half_written)
    else:
        monkeypatch.setattr(os, "replace", no_rename)
    with pytest.raises(type(error)):
        fitted_plain().save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.skipif(os.name != "posix", reason="file modes of POSIX")
def test_a_file_has_the_usual_permissions(path):
    usual = path.with_name("usual")
    usual.write_bytes(b"")
    fitted().save(path)
    assert path.stat().st_mode == usual.stat().st_mode


def test_only_a_fitted_model_can_be_saved(path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        BNNLVRegressor().save(path)
    assert not path.exists()


def test_posteriors_hold_arrays_that_jax_takes(saved):
    loaded = BNNLVRegressor.load(saved)
    leaves = jax.tree.leaves((loaded.posterior_.mean, loaded.posterior_.priors))
    assert all(leaf.dtype == np.float32 for leaf in leaves)


# ----- Files of version 0.1 -----------------------------------------------------------

# Written by version 0.1, and what it predicted at x = -1, -0.5, 0, 0.5 and 1: the mean,
# and the log density of 7, 8, 10, 12 and 13.
OLD = {
    "ncai": (
        NCAI(
            n_weight_draws=16, n_latent_draws=4, hz_weight=2.0, input_tolerance=np.inf
        ),
        [6.27193, 7.843625, 9.297554, 10.216421, 10.81339],
        [-2.899691, -2.657161, -2.801572, -1.336647, -1.159046],
    ),
    "hmc_marginal": (
        HMCMarginal(
            n_weight_draws=16, n_latent_draws=4, n_chains=2, n_warmup=25, n_draws=10
        ),
        [7.070345, 8.506162, 10.255222, 12.15935, 13.969224],
        [-0.282186, -0.633964, -1.406355, -1.496554, -1.72776],
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_a_file_of_version_0_1_predicts_as_it_did(name, path):
    method, mean, log_prob = OLD[name]
    model = BNNLVRegressor.load(old_file(name))
    x = np.linspace(-1, 1, 5)[:, None]
    y = np.array([7.0, 8, 10, 12, 13])
    np.testing.assert_allclose(model.predict(x), mean, rtol=1e-5)
    np.testing.assert_allclose(model.predict_dist(x).log_prob(y), log_prob, rtol=1e-4)
    assert model.inference == method
    assert model.settings_.method == method.resolved("default")
    assert model.settings_.network == MLP((4,))
    model.save(path)  # in the form of today
    again = BNNLVRegressor.load(path)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.get_params() == model.get_params()


def test_settings_of_an_old_file_are_where_they_belong_now(path):
    path.write_bytes(old_file("ncai").read_bytes())
    of_default = {"inference": None, "tune_noise": False, "temperature": 0.5}

    def of_marginal(header):
        settings = header["settings"] | {"inference": "marginal", "tune_noise": False}
        params = header["params"] | of_default
        return header | {"settings": settings, "params": params}

    rewrite(path, of_marginal)
    model = BNNLVRegressor.load(path)
    assert model.inference.temperature == 0.5
    assert model.inference.recalibrate_noise is False
    assert model.settings_.method.recalibrate_noise is False


@pytest.mark.parametrize(
    ("name", "value"), [("posterior_rank", 2), ("weight_groups", "layer")]
)
def test_an_old_file_that_cannot_be_converted_says_what_to_do(name, value, path):
    path.write_bytes(old_file("ncai").read_bytes())
    changed = {name: value}
    rewrite(path, lambda h: h | {"settings": h["settings"] | changed})
    with pytest.raises(
        ModelFileError, match=f"{name}={value!r}.*fit .* again"
    ) as error:
        BNNLVRegressor.load(path)
    assert_one_sentence(error, path)
