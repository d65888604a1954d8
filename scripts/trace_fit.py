"""How far a reader must jump to follow one fit: functions, files, file switches.

`python scripts/trace_fit.py` runs a small default fit and `ncai fit --report`, lists
the functions of the package in the order in which each is first called, and counts how
often the file changes from one to the next. Functions inside functions count as part
of them. All modules are imported first, and a fit to another table comes first, so that
imports and the set-up of JAX do not count.
"""

import argparse
import contextlib
import pkgutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

import ncai

PACKAGE = str(Path(ncai.__file__).parent)


class Trace(NamedTuple):
    """Functions in the order of their first calls, by file."""

    files: list[str]

    def summary(self) -> dict[str, int]:
        """Functions, files, and switches from one file to another."""
        pairs = zip(self.files, self.files[1:], strict=False)
        return {
            "functions": len(self.files),
            "files": len(set(self.files)),
            "switches": sum(one != other for one, other in pairs),
        }


def trace(work: Callable[[], object]) -> Trace:
    """Run `work`, and note each function of the package when it is first called."""
    seen: set[object] = set()
    files: list[str] = []

    def note(frame, event, argument) -> None:
        del argument
        code = frame.f_code
        if event != "call" or code in seen or not code.co_filename.startswith(PACKAGE):
            return
        if "<" in code.co_qualname:  # a module, or inside another function
            return
        seen.add(code)
        files.append(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return Trace(files)


def import_everything() -> None:
    """Import all modules: the body of a class is no function that a fit calls."""
    for module in pkgutil.walk_packages(ncai.__path__, "ncai."):
        if module.name != "ncai.__main__":
            with contextlib.suppress(ImportError):  # it needs an extra
                import_module(module.name)


def small_fit(num_inputs: int = 2) -> None:
    """A default fit of few steps."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (60, num_inputs))
    targets = inputs[:, 0] + rng.normal(size=60)
    model = ncai.BNNLVRegressor(max_steps=8, n_restarts=2, random_state=0)
    model.fit(inputs, targets)


def small_command() -> None:
    """`ncai fit --report` on a small table."""
    from typer.testing import CliRunner

    from ncai.cli.app import app

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "rows.csv"
        rows = rng.normal(size=(80, 3))
        np.savetxt(data, rows, delimiter=",", header="a,b,y", comments="")
        options = ["--max-steps", "8", "--restarts", "2"]
        files = ["--out", f"{folder}/m.ncai", "--report", f"{folder}/r.html"]
        command = ["fit", str(data), "--target", "y", *options, *files]
        result = CliRunner().invoke(app, command)
        if result.exit_code:
            raise SystemExit(result.output)


def main() -> None:
    """Print both traces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the files in order")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    import_everything()
    small_fit(num_inputs=1)
    for name, work in (("fit", small_fit), ("ncai fit --report", small_command)):
        found = trace(work)
        print(name, found.summary())
        if arguments.list:
            print(
                "\n".join(Path(f).relative_to(PACKAGE).as_posix() for f in found.files)
            )


if __name__ == "__main__":
    main()
