"""The fit of the paper: ours, a PyTorch loop, NumPyro in turn and vmapped."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.speed.measuring import PEERS, case_data, python_with, ratios, run_worker

CASES = {
    "goldberg": {"hidden": 20, "noise_variance": 0.01},
    "depeweg": {"hidden": 50, "noise_variance": 0.1},
    "abalone-like": {"hidden": 20, "noise_variance": 0.1},
}
COMMON = {
    "weight_variance": 1.0,
    "latent_variance": 1.0,
    "learning_rate": 0.01,
}
OURS = (sys.executable, "-m", "benchmarks.speed.fit_worker")
# A peer that trains restarts in turn is timed on fewer and the time scaled: its cost
# is proportional to both.
TORCH_STEPS = {"mfvi": 1000, "ncai": 400}


def compare_fits(
    say: Callable[[str], None],
    steps: int = 10_000,
    restarts: int = 10,
    repeats: int = 3,
    cases: tuple[str, ...] = tuple(CASES),
) -> list[dict]:
    """One entry for each case and method: seconds of each side, in turn, and ratios."""
    torch, numpyro = python_with("torch"), python_with("numpyro")
    for name, found in (("torch", torch), ("numpyro", numpyro)):
        if found is None:
            say(f"{name} is not installed: left out (`make peers` installs it)")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            data = str(case_data(case, Path(folder)))
            for method in ("mfvi", "ncai"):
                task = COMMON | CASES[case] | {"data": data, "method": method}
                sides = _sides(task, torch, numpyro, steps, restarts, say)
                result = _in_turn(sides, repeats, say, f"{case} {method}")
                if torch is not None:
                    result["elbo"] = _same_elbo(task, torch, steps, result, say)
                results.append({"case": case, "method": method} | result)
    return results


def _sides(task, torch, numpyro, steps, restarts, say) -> dict[str, Callable[[], dict]]:
    """What to run, by name; each gives seconds for the whole fit."""
    whole = {"steps": steps, "restarts": restarts}
    sides = {"ncai": lambda: run_worker(OURS, task | whole)}
    if torch is not None:
        torch_loop = (torch, str(PEERS / "torch_loop.py"))
        part = {"steps": min(TORCH_STEPS[task["method"]], steps), "restarts": 1}
        scale = steps * restarts / part["steps"]
        threads = _best_threads(torch_loop, task | part)
        say(f"  PyTorch is quickest with {threads} thread{'s' * (threads > 1)}")

        def run_torch():
            found = run_worker(torch_loop, task | part | {"threads": threads})
            seconds = scale * found["seconds"]
            return found | {
                "seconds": seconds,
                "first_seconds": seconds,
                "threads": threads,
                "scaled_from_steps": part["steps"],
            }

        sides["torch"] = run_torch
    if numpyro is not None and task["method"] == "mfvi":
        svi = (numpyro, str(PEERS / "numpyro_svi.py"))

        def run_in_turn():
            found = run_worker(svi, task | whole | {"restarts": 2, "vmapped": False})
            for name in ("seconds", "first_seconds"):
                found[name] *= restarts / 2
            return found | {"scaled_from_restarts": 2}

        sides["numpyro in turn"] = run_in_turn
        sides["numpyro vmapped"] = lambda: run_worker(
            svi, task | whole | {"vmapped": True}
        )
    return sides


def _same_elbo(task, torch, steps, result, say) -> dict:
    """ELBO at the end of a whole fit: ours (10 restarts), the peers' (1 or more)."""
    whole = task | {"steps": steps, "restarts": 1, "threads": 1}
    found = run_worker((torch, str(PEERS / "torch_loop.py")), whole)
    elbos = {
        name: side["elbos"] for name, side in result["sides"].items() if name != "torch"
    }
    elbos["torch"] = found["elbos"]
    ranges = ", ".join(
        f"{name} {min(values):.0f} to {max(values):.0f}"
        for name, values in elbos.items()
    )
    say(f"  ELBO after {steps} steps: {ranges}")
    return elbos


def _best_threads(command, task) -> int:
    short = task | {"steps": max(task["steps"] // 4, 1)}
    seconds = {
        threads: run_worker(command, short | {"threads": threads})["seconds"]
        for threads in (1, 2)
    }
    return min(seconds, key=seconds.__getitem__)


def _in_turn(sides, repeats, say, title) -> dict:
    found: dict[str, list[dict]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            found[name].append(run())
    out: dict = {"sides": {}, "ratios": {}}
    for name, runs in found.items():
        out["sides"][name] = {
            "seconds": [r["seconds"] for r in runs],
            "first_seconds": [r["first_seconds"] for r in runs],
            "elbos": runs[0]["elbos"],
        } | {
            key: runs[0][key]
            for key in ("threads", "scaled_from_steps", "scaled_from_restarts")
            if key in runs[0]
        }
        out["sides"][name]["versions"] = runs[0]["versions"]
    for name in list(sides)[1:]:
        out["ratios"][name] = {
            kind: ratios(
                [run[kind] for run in found[name]],
                [run[kind] for run in found["ncai"]],
            )
            for kind in ("seconds", "first_seconds")
        }
    shown = ", ".join(
        f"{name} {ratio['seconds']['median']:.0f}x"
        f" (first call {ratio['first_seconds']['median']:.0f}x)"
        for name, ratio in out["ratios"].items()
    )
    ours = median(out["sides"]["ncai"]["seconds"])
    say(f"{title}: {ours:.2f} s; {shown}")
    return out
