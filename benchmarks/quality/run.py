"""`ncai bench quality`: run missing cells, score them and write the pages.

Each set and method has its own process, which fits split after split.
"""

import datetime
import json
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quality.methods import (
    ALL_LEADS,
    METHOD_GROUPS,
    METHODS,
    OURS,
    Worker,
    digest_of,
    worker,
)
from benchmarks.quality.problems import (
    SET_GROUPS,
    SPLITS,
    Problem,
    chosen,
    load_problem,
)
from benchmarks.quality.report import write_leads, write_report
from benchmarks.quality.results import Results, Store
from benchmarks.speed.measuring import describe_machine, worker_environment
from ncai.runtime.jax_setup import ONE_THREAD
from ncai.stats.scores import average_log_likelihood, mpiw, picp, rmse
from ncai.study import console

Say = Callable[[str], None]
EXIT_FAILED = 1


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
    """Run every missing cell; return how many batches failed."""
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
    # Tuning comes first and only once; methods without tuning can be split up.
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
            if one_thread:  # other fits ran in parallel: no valid wall time
                row["seconds"] = math.nan
            store.add(batch.dataset, batch.method, row)
            say(
                f"{about} {said['split']}: NLL {row['nll']:.3f}, CRPS "
                f"{row['crps']:.4g}, coverage {row['coverage']:.3f}, "
                f"{row['cpu_seconds']:.1f} CPU s"
            )


def _lines(command: list[str], one_thread: bool) -> Iterator[dict]:
    """Yield the lines that a worker prints."""
    # Parallel fits gain more than threads within one fit.
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


def score_split(said: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """NLL, CRPS, RMSE, coverage and width in raw units, and the gap to the oracle."""
    targets = problem.test[1]
    row = {"split": said["split"]}
    values = {
        name: np.asarray(said[name], float)
        for name in ("log_density", "crps", "mean", "lower", "upper")
    }
    for name, found in values.items():
        if found.shape != targets.shape or np.isnan(found).any():
            raise ValueError(f"{name} of split {said['split']} is not a number a row.")
    row |= {
        "nll": -average_log_likelihood(values["log_density"]),
        "crps": float(values["crps"].mean()),
        "rmse": rmse(targets, values["mean"]),
        "coverage": picp(targets, values["lower"], values["upper"]),
        "width": mpiw(values["lower"], values["upper"]),
        "gap": math.nan if problem.oracle is None else 0.0,
        "test_rows": len(targets),
        "seconds": said["seconds"],
        "cpu_seconds": said["cpu_seconds"],
        "held_out": said.get("held_out"),
    }
    if problem.oracle is not None:
        row["gap"] = row["nll"] + problem.oracle
    return row


@dataclass(frozen=True)
class Request:
    """The parsed options of the command; lists are comma-separated names."""

    sets: str = "all"
    methods: str = "all"
    splits: int = 20
    jobs: int = 1
    again: bool = False
    only_table: bool = False
    judged: str = "default"

    def command(self) -> str:
        """The command that makes the same page."""
        usual = Request()
        words = [
            f" --{name} {getattr(self, name)}"
            for name in ("sets", "methods", "judged")
            if getattr(self, name) != getattr(usual, name)
        ]
        return f"ncai bench quality --table --splits {self.splits}{''.join(words)}"


def bench_quality(asked: Request, out: Path, say: Say) -> int:
    """Run missing cells, then write the tables; return the exit code."""
    sets = chosen(asked.sets, SET_GROUPS, "--sets")
    methods = chosen(asked.methods, METHOD_GROUPS, "--methods")
    if asked.judged not in METHODS:
        raise ValueError(f"--judged {asked.judged!r} must be one of {[*OURS]}.")
    out.mkdir(parents=True, exist_ok=True)
    store = Store(out)
    failed = 0
    if not asked.only_table:
        failed = run_missing(
            store, sets, methods, asked.splits, asked.jobs, asked.again, say
        )
    store.pack()
    if set(methods) <= set(ALL_LEADS):  # they have a page of their own
        path = out.parent / "leads.md"
        page = write_leads(store, asked.splits, path)
    else:
        # The page on disk shows all results, unless the user names a part of them.
        if not asked.only_table:
            asked = replace(asked, sets="all", methods="all")
            sets, methods = list(SET_GROUPS["all"]), list(METHOD_GROUPS["all"])
        results = Results.load(store, sets, methods, asked.splits)
        path = out.with_suffix(".md")
        page = write_report(store, results, asked.judged, asked.command(), out)
    say(page if asked.only_table else f"The table is in {path}.")
    return EXIT_FAILED if failed else 0


def mark_stale(results: Path, reason: str, say: Say) -> None:
    """Mark results that the present code did not compute, and rewrite the pages.

    This covers the paper's experiments (RESULTS/study) and this benchmark
    (RESULTS/bench). An existing mark keeps its date and reason.
    """
    today = datetime.date.today().isoformat()

    def mark(key: tuple[str, str], about: dict) -> dict[str, str] | None:
        dataset, method = key
        if method in METHODS and about.get("digest") == digest_of(method, dataset):
            return None
        return about.get("stale") or {"since": today, "reason": reason}

    store = Store(results / "bench" / "quality")
    store.pack()
    say(f"{store.mark(mark)} of {len(store.keys())} cells of the benchmark are stale.")
    for methods, splits in (("all", 20), ("leads", 5)):
        request = Request(methods=methods, splits=splits, only_table=True)
        bench_quality(request, results / "bench" / "quality", lambda _: None)
    for scale, count in console.mark_stale(results / "study", reason).items():
        say(f"{count} cells of the paper's experiments at scale {scale} are stale.")
        console.write_tables(None, scale, results / "study")
