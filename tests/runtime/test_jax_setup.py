"""The cache of compiled programs: private, bounded, and the user's to refuse.

Also that types and shapes are checked while the tests run, in every process.
"""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from ncai.inference.posterior import GaussianPosterior
from ncai.model.bnn_lv import Variance
from ncai.model.mean_field import gaussian_kl
from ncai.runtime import jax_setup as compilation
from ncai.stats.correlation import squared_correlation


def said_by(code, tmp_path, **environment):
    """What a new process says; JAX's setting is left as a user would have it."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "NCAI_", "XDG_", "XLA_")) and name != "NPROC"
    }
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | {"XDG_CACHE_HOME": str(tmp_path)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()


def folder_in_use(tmp_path, **environment):
    code = (
        "import jax\n"
        "from ncai.runtime.jax_setup import prepare_jax\n"
        "print(prepare_jax())\n"
        "print(jax.config.jax_compilation_cache_dir)\n"
    )
    return said_by(code, tmp_path, **environment)


def test_on_by_default_in_a_private_folder(tmp_path):
    folder = tmp_path / "ncai" / "compiled"
    assert folder_in_use(tmp_path) == [str(folder)] * 2
    assert folder.stat().st_mode & 0o077 == 0


# The number of threads of XLA's pool, and the variable that other programs would see.
COUNT = (
    "import os, pathlib\n"
    "names = pathlib.Path('/proc/self/task').glob('*/comm')\n"
    "print(sum('XLAEigen' in name.read_text() for name in names))\n"
    "print(os.environ.get('NPROC'))\n"
)


@pytest.fixture(scope="module")
def after_a_fit(tmp_path_factory):
    """Names of the programs kept by a fit in a new process, and what it says then."""
    code = (
        "import numpy as np\n"
        "from ncai import BNNRegressor\n"
        "x = np.linspace(-1, 1, 20)[:, None]\n"
        "BNNRegressor(preset='paper', max_steps=1, n_restarts=1).fit(x, x[:, 0])\n"
    )
    folder = tmp_path_factory.mktemp("cache")
    said = said_by(code + COUNT, folder, NCAI_THREADS="1")
    return [path.name for path in (folder / "ncai" / "compiled").iterdir()], said


def test_a_fit_keeps_its_first_programs_too(after_a_fit):
    # Where each restart starts is drawn before any training.
    assert any("_starting_state" in name for name in after_a_fit[0])


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts by /proc")
def test_the_pool_of_xla_has_no_more_threads_than_are_asked_for(after_a_fit, tmp_path):
    """With one program and several threads XLA splits what is too small to be split."""
    assert after_a_fit[1] == ["1", "None"]
    code = (
        "import jax\n"
        "from ncai.runtime.jax_setup import prepare_jax\n"
        "prepare_jax()\n"
        "jax.numpy.ones(2).block_until_ready()\n"
    )
    assert said_by(code + COUNT, tmp_path, NCAI_THREADS="3") == ["3", "None"]
    assert said_by(code + COUNT, tmp_path, NCAI_THREADS="3", NPROC="2") == ["2", "2"]


@pytest.mark.parametrize("asked", ["abc", "0", "-1", "2.5"])
def test_a_number_of_threads_that_is_none_is_refused(asked, monkeypatch):
    monkeypatch.setenv("NCAI_THREADS", asked)
    with pytest.raises(ValueError, match=f"NCAI_THREADS='{asked}' must be a whole"):
        compilation.num_threads()


def test_off_when_asked(tmp_path):
    assert folder_in_use(tmp_path, NCAI_CACHE_DIR="off") == ["None", "None"]


def test_the_setting_of_jax_wins(tmp_path):
    said = folder_in_use(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
    assert said == ["None", str(tmp_path / "own")]


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
def test_a_folder_that_others_can_write_is_not_used(tmp_path):
    folder = tmp_path / "compiled"
    folder.mkdir(mode=0o700)
    assert compilation._is_private(folder)
    folder.chmod(0o777)
    assert not compilation._is_private(folder)


def program(number):
    return f"jit_f-{number:064x}-cache"


def test_the_oldest_programs_go_first(tmp_path):
    for age in range(6):
        path = tmp_path / program(age)
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 - age, 1000 - age))
    compilation._drop_oldest(tmp_path, 600)
    assert len(list(tmp_path.iterdir())) == 6
    compilation._drop_oldest(tmp_path, 599)
    assert sorted(p.name for p in tmp_path.iterdir()) == [program(0), program(1)]


def test_only_programs_are_deleted(tmp_path):
    (tmp_path / "thesis.tex").write_bytes(b"x" * 1000)
    (tmp_path / program(1)).mkdir()  # even under such a name
    (tmp_path / "elsewhere").write_bytes(b"x" * 1000)
    try:
        (tmp_path / program(2)).symlink_to(tmp_path / "elsewhere")
    except OSError:
        pytest.skip("needs symbolic links")
    (tmp_path / program(3)).write_bytes(b"x" * 1000)
    compilation._drop_oldest(tmp_path, 10)
    kept = {"thesis.tex", program(1), "elsewhere", program(2)}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_folder_of_somebody_else_is_not_used(tmp_path):
    folder = tmp_path / "compiled"
    folder.mkdir()
    assert compilation._is_ours(folder)  # new, and marked from now on
    (folder / "notes.txt").write_text("mine")
    assert compilation._is_ours(folder)
    (folder / compilation.MARKER).unlink()
    assert not compilation._is_ours(folder)
    (folder / "notes.txt").unlink()
    (folder / program(1)).write_bytes(b"x")  # as version 0.1 left it
    assert compilation._is_ours(folder)
    (folder / compilation.MARKER).write_text("of another program")
    assert not compilation._is_ours(folder)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_a_link_to_a_folder_is_not_followed(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (tmp_path / "ncai").mkdir()
    (tmp_path / "ncai" / "compiled").symlink_to(mine)
    assert folder_in_use(tmp_path) == ["None", "None"]
    assert not list(mine.iterdir())


# A fit in the parent, then jobs in children. An alarm ends a child that hangs.
FORKS = """
import multiprocessing, os, signal, sys, warnings
import numpy as np
import jax
from joblib import Parallel, delayed
from ncai import BNNLVRegressor

warnings.simplefilter("ignore")  # JAX and Python warn of the fork itself
X = np.linspace(-1, 1, 20)[:, None]
TINY = {"inference": "mfvi", "max_steps": 1, "n_restarts": 1, "random_state": 0}


def fit():
    return BNNLVRegressor(**TINY).fit(X, X[:, 0])


def forked(job):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(60)
    try:
        job()
        os._exit(0)
    except RuntimeError as error:
        os._exit(7 if "spawn" in str(error) else 8)
    finally:
        os._exit(9)


if __name__ == "__main__":
    if sys.argv[1] == "before":
        print(forked(fit))  # nobody has used JAX yet
    elif sys.argv[1] == "user":
        jax.numpy.ones(2).block_until_ready()
        print(forked(fit))
    else:
        model = fit()
        density = model.predict_dist(X)
        jobs = [fit, lambda: model.predict(X), lambda: model.sample_y(X)]
        jobs += [density.mean, lambda: density.sample(2), model.diagnose]
        jobs += [lambda: density.sample_functions(2)]
        jobs += [lambda: model.latent_posterior(X, X[:, 0])]
        print(*(forked(job) for job in jobs))
        usual = model.predict(X)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(np.array_equal(pool.apply(model.predict, (X,)), usual))
        (again,) = Parallel(n_jobs=2)([delayed(model.predict)(X)])
        print(np.array_equal(again, usual))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("when", "found"),
    [("before", ["0"]), ("user", ["7"]), ("after", ["7"] * 8 + ["True"] * 2)],
)
def test_a_forked_child_raises_an_error_and_does_not_hang(when, found, tmp_path):
    """Other ways to start a process work, and a fork before JAX starts does, too."""
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    run = subprocess.run(
        [sys.executable, script, when], capture_output=True, text=True, timeout=240
    )
    assert run.stdout.split() == found, run.stderr


def test_a_shape_other_than_annotated_is_refused(key):
    latents, inputs = jax.random.normal(key, (2, 8, 1))
    weights = jnp.ones(8)
    assert squared_correlation(inputs, latents, weights).shape == ()
    with pytest.raises(TypeCheckError, match="row_weights"):
        squared_correlation(inputs, latents, weights[:4])
    with pytest.raises(TypeCheckError, match="scale"):
        jax.jit(gaussian_kl)(latents, jnp.ones(8), 1.0)


def test_a_type_other_than_annotated_is_refused():
    with pytest.raises(TypeCheckError, match="mode"):
        Variance(jnp.ones(1), mode=None)
    with pytest.raises(TypeCheckError, match="model"):
        GaussianPosterior("a model", *[None] * 4)


@pytest.mark.usefixtures("any_types")
def test_a_test_may_pass_any_type():
    assert Variance(jnp.ones(1), mode=None).mode is None


def test_keys_of_the_old_kind_are_refused():
    with pytest.raises(ValueError, match="key"):
        jax.random.uniform(jax.random.PRNGKey(0))
