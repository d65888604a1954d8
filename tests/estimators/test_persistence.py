"""Model files: what is written comes back, and nothing else is taken for a model."""

import copy
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from rich.console import Console
from safetensors import safe_open
from safetensors.numpy import save_file

from helpers import data, fitted, fitted_plain, old_file, tiny, tiny_plain
from ncai import (
    MLP,
    NCAI,
    BNNLVRegressor,
    BNNRegressor,
    HMCMarginal,
    ModelFileError,
    TableModel,
)
from ncai.cli._options import column_table, label_table, score_table, without_infinity
from ncai.cli.models import _lines
from ncai.estimators import persistence as files
from ncai.runtime.atomic_write import check_writable, replacing
from ncai.tables.inspect import diagnose_model, inspect_model

if os.name == "posix":
    import resource


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.safetensors"


@pytest.fixture
def saved(path):
    fitted().save(path)
    return path


def rewrite(path, change_header=None, change_arrays=None):
    """The same file with another header or other arrays, and the checksum of these."""
    with safe_open(path, framework="numpy") as handle:
        metadata = handle.metadata()
        arrays = {name: handle.get_tensor(name) for name in handle.keys()}
    header = json.loads(metadata["ncai"])
    header.pop(files.CHECKSUM, None)
    if change_header is not None:
        header = change_header(header)
    if change_arrays is not None:
        change_arrays(arrays)
    header[files.CHECKSUM] = files.checksum(header, arrays)
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


def test_a_file_without_a_checksum_is_refused(saved):
    with safe_open(saved, framework="numpy") as handle:
        header = json.loads(handle.metadata()["ncai"])
        arrays = {name: handle.get_tensor(name) for name in handle.keys()}
    del header[files.CHECKSUM]
    save_file(arrays, saved, metadata={"ncai": json.dumps(header)})
    with pytest.raises(ModelFileError, match="no checksum") as error:
        BNNLVRegressor.load(saved)
    assert_one_sentence(error, saved)


def test_numbers_that_are_not_finite_are_refused(saved):
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


def with_draws(header, **counts):
    method = header["settings"]["method"]
    own = method["settings"] | counts
    settings = header["settings"] | {"method": method | {"settings": own}}
    return header | {"settings": settings}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h | {"dims": [10**9, 1, 1]}, "number of inputs, 1000000000"),
        (lambda h: h | {"dims": [1, 10**9, 1]}, "number of latents"),
        (lambda h: h | {"dims": [1, 1, 2000]}, "2000 outputs, not a single one"),
        (lambda h: h | {"num_weights": 10**9}, "small for 1000000000 weights"),
        (lambda h: h | {"mlp": {**h["mlp"], "hidden": [1] * 10**4}}, "the layers"),
        (lambda h: with_draws(h, n_latent_draws=10**9), "n_latent_draws.*100000"),
        (lambda h: with_draws(h, n_weight_draws=10**6, n_latent_draws=16), "in all"),
        (lambda h: h | {"seed": "7"}, "holds '7' as seed"),
        (lambda h: h | {"version": math.inf}, "not one that ncai wrote"),
        (lambda h: h | {"stop_reasons": [1]}, r"holds 1 as stop_reasons\.0.*a text"),
        (lambda h: h | {"custom_network": "\x1b]0;hi\a"}, r"\(\?\]0;hi\?\)"),
    ],
    ids=range(11),
)
@pytest.mark.usefixtures("any_types")
def test_a_header_is_checked_before_memory_is_taken(change, words, saved):
    rewrite(saved, change)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=words) as error:
            BNNLVRegressor.load(saved)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert_one_sentence(error, saved)


def test_what_could_not_be_read_is_not_written(path):
    model = copy.copy(fitted())
    settings = model.settings_
    many = settings.method.set_params(n_latent_draws=10**6)
    model.settings_ = replace(settings, method=many)
    with pytest.raises(ValueError, match=r"cannot be saved.*n_latent_draws"):
        model.save(path)
    assert not path.exists()


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


@pytest.mark.skipif(os.name != "posix", reason="file modes and links of POSIX")
def test_a_replaced_file_keeps_its_permissions_and_links(tmp_path):
    secret, link = tmp_path / "secret.ncai", tmp_path / "link.ncai"
    secret.write_bytes(b"old")
    secret.chmod(0o600)
    link.symlink_to(secret)
    seen = []
    with replacing(link) as temporary:
        seen.append(temporary.stat().st_mode & 0o777)  # while it is written, too
        temporary.write_bytes(b"new")
    assert seen == [0o600]
    assert secret.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()
    assert link.read_bytes() == b"new"
    secret.chmod(0o400)
    with replacing(secret) as temporary:
        temporary.write_bytes(b"newer")
    assert secret.stat().st_mode & 0o777 == 0o400
    secret.unlink()  # the link now leads to nothing
    with replacing(link) as temporary:
        temporary.write_bytes(b"again")
    assert secret.read_bytes() == b"again"


WRITES = """
import sys, time
from pathlib import Path
from ncai.runtime.atomic_write import replacing

with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    print(flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_what_a_killed_process_left_is_removed_later(path):
    command = [sys.executable, "-c", WRITES, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        (hidden,) = path.parent.iterdir()
        with replacing(path) as temporary:
            temporary.write_bytes(b"ours")
        assert hidden.exists()  # somebody is writing it
        writer.kill()
    other = path.with_name(f".{path.name}.notes")
    other.write_text("of the user")
    with replacing(path) as temporary:
        temporary.write_bytes(b"ours")
    assert {one.name for one in path.parent.iterdir()} == {path.name, other.name}


def test_contents_are_on_the_disk_before_they_get_their_name(path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        usual = getattr(os, name)

        def noted(*given, name=name, usual=usual):
            calls.append(name)
            return usual(*given)

        monkeypatch.setattr(os, name, noted)
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
    assert calls[:2] == ["fsync", "replace"]
    assert path.read_bytes() == b"new"


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


# ----- Forged files -------------------------------------------------------------------

_DEEP = 100_000
WRONG = (None, True, False, -1, 0, 1, 2, 1.5, 10**9, 2**31, 2**63, 10**30, -(10**9))
WRONG = (*WRONG, 1e308, math.inf, -math.inf, math.nan, "", "x", "inf", "\x1b[2J\n")
WRONG = (*WRONG, "\ud800", "a" * 10_000, [], {}, [[]], [None], ["a"], [0] * 5000)
WRONG = (*WRONG, {"a": 1}, {"": []}, [10**9] * 3, [1, -1, 1], "ncai", "marginal")
# Texts that are put in place of a value after all else was written.
RAW = ("[" * _DEEP, "[" * _DEEP + "]" * _DEEP, '{"a":' * 500 + "1" + "}" * 500)
RAW = (*RAW, "9" * 5000, "1e999", "-Infinity", '"\\ud800"', "{", "", '{"a":1,"a":2}')
_MARK = "put here later"
MOST_BYTES = 200_000_000
LONGEST = 5  # seconds for one file


def places_in(value, place=()):
    """The place of every value of a header, as keys and indices."""
    yield place
    if len(place) == 12:
        return
    parts = value.items() if isinstance(value, dict) else ()
    parts = enumerate(value[:3]) if isinstance(value, list) else parts
    for name, part in parts:
        yield from places_in(part, (*place, name))


def forge_header(header, random):
    """A header with one to three wrong entries, as text."""
    header, raw = copy.deepcopy(header), None
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        *above, name = random.choice([*places_in(header)][1:])
        whole = header
        for one in above:
            whole = whole[one]
        old, way = whole[name], random.randrange(10)
        if way == 0:
            del whole[name]
        elif way == 1 and isinstance(old, int | float):
            whole[name] = old * 10 ** random.randrange(1, 12)
        elif way == 2:
            other = random.choice([*places_in(header)][1:])
            part = header
            for one in other:
                part = part[one]
            whole[name] = copy.deepcopy(part)
        elif way == 3 and isinstance(old, list):
            whole[name] = old * random.choice((2, 100))
        elif way == 4 and isinstance(whole, dict):
            whole[random.choice(("", "name", f"{name} ", "\x1b"))] = whole.pop(name)
        elif way == 5:
            raw, whole[name] = random.choice(RAW), _MARK
        elif way == 6:
            for _ in range(random.choice((5, 50, 200))):
                old = random.choice(([old], {"a": old}))
            whole[name] = old
        else:
            whole[name] = copy.deepcopy(random.choice(WRONG))
        if not any(places_in(header)):
            break
    if raw is None:
        return header, None
    return header, json.dumps(header).replace(f'"{_MARK}"', raw)


def forge_arrays(arrays, random):
    """One array that is missing, or of another shape, type or value."""
    arrays, name = dict(arrays), random.choice(sorted(arrays))
    old, way = arrays.pop(name), random.randrange(7)
    shapes = (
        (),
        (0,),
        (0, 10**12),
        (1,) * 30,
        (1, 1),
        old.shape[::-1],
        (*old.shape, 1),
    )
    if way == 1:
        shape = random.choice(shapes)
        arrays[name] = np.zeros(shape, old.dtype)
    elif way == 2:
        dtype = random.choice(("i8", "f8", "f2", "u1", "?", "i4"))
        with np.errstate(invalid="ignore"):
            arrays[name] = old.astype(dtype)
    elif way == 3:
        arrays[name] = np.full_like(old, random.choice((-1, 0, 10**9)))
    elif way == 4:
        arrays[random.choice(("", "a\x1b", "training.inputs"))] = old
    elif way == 5:
        arrays[name] = np.repeat(old, 3, axis=0)
    elif way == 6:
        arrays |= {f"{name}.{i}": old for i in range(200)}
    return arrays


def forge_bytes(content, random):
    """A file that is cut, or has other bytes, or claims another length."""
    content, way = bytearray(content), random.randrange(3)
    if way == 0:
        return bytes(content[: random.randrange(len(content))])
    if way == 1:
        length = random.choice((0, 7, len(content), 10**8, 2**40, 2**64 - 1))
        return length.to_bytes(8, "little") + bytes(content[8:])
    for _ in range(random.choice((1, 5))):
        content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content)


def forged(content, random):
    """A forged model file; its checksum is right unless that is what was forged."""
    if random.random() < 0.1:
        return forge_bytes(content, random)
    loaded = safetensors.numpy.load(content)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["ncai"])
    header.pop(files.CHECKSUM)
    text = None
    if random.random() < 0.15:
        loaded = forge_arrays(loaded, random)
    else:
        header, text = forge_header(header, random)
    if random.random() < 0.95:
        try:
            again = header if text is None else json.loads(text)
            header[files.CHECKSUM] = files.checksum(again, loaded)
        except (ValueError, RecursionError, AttributeError, TypeError):
            header[files.CHECKSUM] = "0" * 64
        if text is not None:
            text = f'{text[:-1]}, "{files.CHECKSUM}": "{header[files.CHECKSUM]}"}}'
    if text is None:
        text = json.dumps(header)
        if random.random() < 0.02:  # an entry twice
            text = f"{text[:-1]}, {text[1:]}"
    return safetensors.numpy.save(loaded, metadata={"ncai": text})


def read_in_every_way(path):
    """What the library makes of a file: "loaded", or the message of its own error."""
    outcome = "loaded"
    for read in (TableModel.load, inspect_and_show, diagnose_kept):
        try:
            repr(read(path))
        except ModelFileError as error:
            outcome = str(error)
            assert outcome.endswith("."), outcome
            assert outcome.isprintable(), outcome
            assert len(outcome) < 1000, outcome[:1000]
            assert str(path) in outcome, outcome
    return outcome


def diagnose_kept(path):
    header, _ = files.read_file(path)
    if (header.get("table") or {}).get("diagnosis"):
        try:
            str(diagnose_model(path))
        except ModelFileError:
            raise
        except ValueError as error:  # part of it is missing, or there is no z
            if not re.search("neither a diagnosis|has no z", str(error)):
                raise


def inspect_and_show(path):
    """What `ncai inspect` prints."""
    found = inspect_model(path)
    console = Console(file=io.StringIO(), width=100)
    console.print(label_table(_lines(found)))
    console.print(column_table(found["columns"], most=None))
    console.print(score_table(found["scores"], found["num_test"]))
    json.dumps(without_infinity(found), allow_nan=False)


def fuzz(count, seed, folder):
    """Read forged copies of all model files in a folder; prints what happened."""
    random, outcomes = Random(seed), Counter()
    contents = [path.read_bytes() for path in sorted(folder.glob("*.ncai"))]
    for path in sorted(folder.glob("*.ncai")):
        assert read_in_every_way(path) == "loaded"
    path, slowest = folder / "forged.tmp", 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for _ in range(count):
        content = forged(random.choice(contents), random)
        path.write_bytes(content)
        begun = time.perf_counter()
        signal.alarm(LONGEST)
        try:
            outcome = read_in_every_way(path)
        except BaseException:
            (folder / "failed.tmp").write_bytes(content)
            raise
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - begun)
        outcomes["loaded" if outcome == "loaded" else "refused"] += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({**outcomes, "slowest": slowest, "bytes": 1024 * peak}))


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    """A folder of model files of each kind."""
    folder = tmp_path_factory.mktemp("genuine")
    for name in ("ncai", "hmc_marginal", "houses"):
        (folder / f"{name}.ncai").write_bytes(old_file(name).read_bytes())
    fitted().save(folder / "mfvi.ncai", include_training=True)
    fitted("hmc").save(folder / "hmc.ncai", include_training=True)
    fitted_plain().save(folder / "plain.ncai")
    model = TableModel.load(old_file("houses"))
    diagnosis = fitted().diagnose(num_permutations=40).to_dict()
    record = replace(model.record, diagnosis=diagnosis)
    replace(model, record=record).save(folder / "table.ncai")
    return folder


@pytest.mark.skipif(os.name != "posix", reason="measures memory by POSIX")
@pytest.mark.parametrize(
    ("count", "limit"),
    [(400, 120), pytest.param(100_000, 3600, marks=pytest.mark.slow)],
)
def test_a_forged_file_is_refused_in_one_sentence(count, limit, genuine):
    """No traceback, no hang, little memory; in a process without our type checks."""
    command = [sys.executable, __file__, str(count), str(count), str(genuine)]
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=limit,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["loaded"] + found["refused"] == count
    assert found["refused"] > count / 2
    assert found["slowest"] < LONGEST
    assert found["bytes"] < MOST_BYTES


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
