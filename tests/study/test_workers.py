"""Cells on real worker processes: joblib's and Dask's, killed and not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ncai.runtime.jax_setup import ONE_THREAD
from ncai.study.engine.cells import SCALES
from ncai.study.engine.store import Store
from ncai.study.experiments.divergence import DIVERGENCE
from ncai.study.experiments.theory import THEORY

SCALE = SCALES["smoke"]
WAIT = 900.0  # seconds, for a machine that is busy with other things
# The studies whose smoke cells are quickest.
NAMES = ("theory", "divergence")
CELLS = [
    cell
    for study in (THEORY, DIVERGENCE)
    for cell in study.cells(SCALE, Store(Path("nowhere")))
]


def command(folder: Path, *more: str) -> list[str]:
    call = "from ncai.cli.app import main; main()"
    told = ["study", "run", *NAMES, "--scale", "smoke", "--out", str(folder), *more]
    return [sys.executable, "-c", call, *told]


def found(folder: Path) -> dict[str, object]:
    """Contents of every file but for times; arrays as their bytes."""
    contents: dict[str, object] = {}
    for path in sorted((folder / "smoke").rglob("*")):
        if path.is_dir():
            continue
        name = str(path.relative_to(folder))
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                contents[name] = {k: v.tobytes() for k, v in arrays.items()}
        else:
            record = json.loads(path.read_text())
            contents[name] = {k: record[k] for k in ("study", "settings", "row")}
    return contents


def wait_until(condition, what: str) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


def num_done(folder: Path) -> int:
    return len(list(folder.rglob("*.json")))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> dict[str, object]:
    """What one job finds that nobody disturbs."""
    folder = tmp_path_factory.mktemp("unbroken")
    subprocess.run(command(folder), check=True, timeout=WAIT, capture_output=True)
    contents = found(folder)
    assert len([n for n in contents if n.endswith(".json")]) == len(CELLS)
    return contents


def test_two_jobs_find_the_same_bit_for_bit(unbroken, tmp_path):
    subprocess.run(
        command(tmp_path, "--jobs", "2"), check=True, timeout=WAIT, capture_output=True
    )
    assert found(tmp_path) == unbroken


def test_a_run_killed_in_the_middle_and_resumed_finds_the_same(unbroken, tmp_path):
    run = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: num_done(tmp_path) >= 2, "two cells")
        run.send_signal(signal.SIGKILL)
    finally:
        run.kill()
        run.wait()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.json")}
    assert 2 <= len(before) < len(CELLS)
    subprocess.run(command(tmp_path), check=True, timeout=WAIT, capture_output=True)
    assert found(tmp_path) == unbroken
    # The cell that was running may have been ended by its orphaned worker.
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_dask_workers_one_of_them_killed(unbroken, tmp_path):
    """A scheduler and two workers on loopback; every cell is stored once, whole."""
    pytest.importorskip("distributed")
    environment = os.environ | ONE_THREAD
    address_file, folder = tmp_path / "scheduler.json", tmp_path / "out"

    def dask(*told: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *told],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    started = [
        dask(
            *("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--scheduler-file", str(address_file)),
        )
    ]
    try:
        wait_until(address_file.exists, "the scheduler")
        address = json.loads(address_file.read_text())["address"]
        for name in ("first", "second"):
            local = str(tmp_path / name)
            started.append(
                # Without a nanny: a process that is killed stays dead.
                dask(
                    *("worker", address, "--nthreads", "1", "--no-nanny"),
                    *("--no-dashboard", "--name", name, "--local-directory", local),
                )
            )
        run = subprocess.Popen(
            command(folder, "--scheduler", address), stdout=subprocess.PIPE, text=True
        )
        started.append(run)
        wait_until(lambda: num_done(folder) >= 3, "three cells")
        started[2].send_signal(signal.SIGKILL)
        output, _ = run.communicate(timeout=WAIT)
        assert run.returncode == 0, output
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
    assert found(folder) == unbroken
    finished = [line.split()[1] for line in output.splitlines() if " s  (" in line]
    assert sorted(finished) == sorted(cell.id for cell in CELLS)


def test_a_scheduler_that_is_not_there(tmp_path):
    told = command(tmp_path, "--scheduler", "tcp://127.0.0.1:9")
    ended = subprocess.run(told, timeout=WAIT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "--scheduler tcp://127.0.0.1:9 cannot be reached" in ended.stderr


def test_without_dask_the_extra_is_named(tmp_path):
    call = (
        "import sys; sys.modules['distributed'] = None; "
        "from ncai.cli.app import main; main()"
    )
    told = command(tmp_path, "--scheduler", "tcp://127.0.0.1:9")
    told[2] = call
    ended = subprocess.run(told, timeout=WAIT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert 'pip install "ncai[distributed]"' in ended.stderr
    assert "Traceback" not in ended.stderr
