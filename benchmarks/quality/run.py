"""Run what is missing: a process for each set and method, its splits one by one."""

import json
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.quality.methods import Worker, worker
from benchmarks.quality.problems import SPLITS, load_problem
from benchmarks.quality.scores import score_split
from benchmarks.quality.store import Store
from benchmarks.speed.machine import describe_machine
from benchmarks.speed.workers import worker_environment
from ncai.runtime.jax_setup import ONE_THREAD

Say = Callable[[str], None]


@dataclass(frozen=True)
class Batch:
    """Some splits of one set for one method."""

    dataset: str
    method: str
    splits: tuple[int, ...]
    worker: Worker


def run_missing(
    store: Store,
    sets: list[str],
    methods: list[str],
    splits: int,
    jobs: int,
    again: bool,
    say: Say,
) -> int:
    """Run every cell that is not there; returns how many batches failed."""
    batches = [
        batch
        for method in methods
        for dataset in sets
        for batch in _missing(store, dataset, method, splits, jobs, again, say)
    ]
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        futures = {
            pool.submit(_run_batch, store, batch, jobs > 1, say): batch
            for batch in batches
        }
        try:
            for future in as_completed(futures):
                batch = futures[future]
                error = future.exception()
                if error is not None:
                    failed += 1
                    say(f"{batch.dataset} {batch.method} failed: {error}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def _missing(
    store: Store, dataset: str, method: str, splits: int, jobs: int, again: bool, say
) -> Iterator[Batch]:
    found = worker(method, dataset)
    known = store.about(dataset, method)
    if again or known.get("digest", found.digest) != found.digest:
        store.clear(dataset, method)
        known = {}
    done = set(store.rows(dataset, method)["split"])
    wanted = range(min(splits, SPLITS[dataset]))
    missing = [split for split in wanted if split not in done]
    if not missing:
        return
    store.tell(dataset, method, digest=found.digest, machine=describe_machine())
    # Tuning comes first and once; what needs none may be shared out.
    parts = 1 if found.tuned and "settings" not in known else jobs
    for part in np.array_split(missing, parts):
        if len(part):
            yield Batch(dataset, method, tuple(int(s) for s in part), found)


def _run_batch(store: Store, batch: Batch, one_thread: bool, say: Say) -> None:
    about = f"{batch.dataset} {batch.method}"
    with tempfile.TemporaryDirectory() as folder:
        problems = {split: load_problem(batch.dataset, split) for split in batch.splits}
        files = {}
        for split, problem in problems.items():
            files[split] = str(Path(folder) / f"{split}.npz")
            problem.save(Path(files[split]))
        first = Path(folder) / "first.npz"
        load_problem(batch.dataset, 0).save(first)
        known = store.about(batch.dataset, batch.method)
        task = batch.worker.task | {
            "files": files,
            "first_file": str(first),
            "settings": known.get("settings"),
        }
        path = Path(folder) / "task.json"
        path.write_text(json.dumps(task))
        for said in _lines([*batch.worker.command, str(path)], one_thread):
            if "split" not in said:
                store.tell(batch.dataset, batch.method, **said)
                if "settings" in said:
                    took = said["tuning_seconds"]
                    say(f"{about}: tuned to {said['settings']} in {took:.0f} s")
                continue
            row = score_split(said, problems[said["split"]])
            if one_thread:  # other fits ran beside it: the clock says nothing of it
                row["seconds"] = math.nan
            store.add(batch.dataset, batch.method, row)
            say(
                f"{about} {said['split']}: NLL {row['nll']:.3f}, CRPS "
                f"{row['crps']:.4g}, coverage {row['coverage']:.3f}, "
                f"{row['cpu_seconds']:.1f} CPU s"
            )


def _lines(command: list[str], one_thread: bool) -> Iterator[dict]:
    """What a worker says, line by line."""
    # Fits side by side gain more than threads within one.
    environment = worker_environment(**(ONE_THREAD if one_thread else {}))
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        except BaseException:
            process.kill()
            raise
        if process.wait():
            errors.seek(0)
            lines = errors.read().strip().splitlines() or ["no message"]
            raise RuntimeError(lines[-1])
