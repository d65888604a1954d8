"""What tests of several packages share: running the command, and real data sets."""

import hashlib
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ncai.cli import app as cli
from ncai.datasets.registry import RealSet

# Settings that compile one stage of training; the demo runs all those of ncai.
QUICK = ("--max-steps", 100, "--restarts", 2, "--inference", "mfvi")
QUICK = (*QUICK, "--preset", "paper")


def run(*arguments, **options):
    return CliRunner().invoke(cli.app, [str(one) for one in arguments], **options)


def refused(result, *words):
    """Exit code 2, and one sentence with these words; nothing on standard output."""
    assert result.exit_code == 2, (result.exit_code, result.stderr, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr
    return True


FOLDER = os.environ.get("NCAI_DATA_DIR", "")


def real_data(test):
    """For a test that needs the files."""
    reason = "the real data sets are not here: NCAI_DATA_DIR names no folder"
    missing = not FOLDER or not Path(FOLDER).is_dir()
    return pytest.mark.real_data(pytest.mark.skipif(missing, reason=reason)(test))


TOY = "kind,size,price\na,1.50,10\nb,2,11.5\na,0.25,9\n"


def toy(text=TOY, **changes):
    """A set like the real ones, of three rows."""
    rows = [line.split(",") for line in text.splitlines()[1:]]
    plain = "".join(f"{k},{float(s):.6g},{float(p):.6g}\n" for k, s, p in rows)
    fields = {
        "name": "toy",
        "title": "Toy",
        "columns": ("kind", "size", "price"),
        "rows": len(rows),
        "digest": hashlib.sha256(plain.encode()).hexdigest(),
        "target_mean": float(np.mean([float(row[-1]) for row in rows])),
        "licence": "CC0",
        "reference": "nobody",
        "openml_id": 7,
        "one_hot": (("kind", ("a", "b")),),
        "paper_rows": 2,
    }
    return RealSet(**{**fields, **changes})


# ----- Model files --------------------------------------------------------------------


@cache
def _old_files():
    folder = tempfile.TemporaryDirectory()  # it is removed when the tests end
    with zipfile.ZipFile(Path(__file__).with_name("files_0_1.zip")) as archive:
        archive.extractall(folder.name)
    return folder


def old_file(name):
    """A model file that version 0.1 wrote."""
    return Path(_old_files().name) / f"{name}-0.1.ncai"
