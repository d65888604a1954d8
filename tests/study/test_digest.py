"""The digest of a result changes with what its code does, not with how it is told."""

import re
from pathlib import Path

import pytest

from ncai.study.engine import digest
from ncai.study.engine.digest import SOURCE, Code, digest_of
from ncai.study.registry import STUDIES

READ_TEXT = Path.read_text

MATHS = '''
"""Formulas."""
from dataclasses import dataclass
import numpy as np

FACTOR = 2.0
UNUSED = 3.0

def scaled(x, shift=1.0):
    """Of x."""
    if x is None:
        raise ValueError("x is missing.")
    return FACTOR * x + shift  # a comment

def never_called(x):
    return scaled(x) ** 2

@dataclass(frozen=True)
class Method:
    """Settings."""

    rate: float = 0.1
    other: int = 5

    def fit(self, x):
        return scaled(x) * self.rate

    def plot(self):
        return self.other
'''
ENTRY = """
from package.maths import Method

def run(x):
    return Method().fit(x)
"""


def meaning(maths=MATHS, entry=ENTRY, **more):
    sources = {"package.maths": maths, "package.entry": entry, **more}
    return Code.of(sources).reach([("package.entry", "run")])


BEFORE = meaning()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Of x."""', '"""Of x, scaled and shifted."""'),
        ('    """Of x."""\n', ""),
        ("# a comment", "# another"),
        ("x is missing.", "x must be given."),
        ("FACTOR * x + shift", "(FACTOR *\n        x) + shift"),
        (
            "def scaled(x, shift=1.0)",
            "def scaled(x: float, shift: float = 1.0) -> float",
        ),
        ("rate: float", "rate: int | float"),
        ("UNUSED = 3.0\n", ""),
        ("def never_called(x):\n    return scaled(x) ** 2\n", ""),
        ("    def plot(self):\n        return self.other\n", ""),
        ("    other: int = 5\n", ""),
        ("import numpy as np\n", "import numpy as np\nimport math\n"),
    ],
)
def test_what_decides_no_number_keeps_it(old, new):
    assert old in MATHS
    assert meaning(MATHS.replace(old, new)) == BEFORE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR * x + shift", "FACTOR * x - shift"),
        ("FACTOR = 2.0", "FACTOR = 2.5"),
        ("shift=1.0", "shift=0.0"),
        ("rate: float = 0.1", "rate: float = 0.2"),
        ("scaled(x) * self.rate", "scaled(x) * self.rate / self.other"),
    ],
)
def test_another_formula_constant_or_default_changes_it(old, new):
    assert old in MATHS
    assert meaning(MATHS.replace(old, new)) != BEFORE


def test_a_function_that_moves_keeps_it():
    start, end = MATHS.index("def scaled"), MATHS.index("def never_called")
    moved = "FACTOR = 2.0\n" + MATHS[start:end]
    rest = (MATHS[:start] + MATHS[end:]).replace("FACTOR = 2.0\n", "")
    by_name = "from package.other import scaled\n" + rest
    assert meaning(by_name, **{"package.other": moved}) == BEFORE
    by_alias = "from package.other import scaled as s\n" + re.sub(
        r"\bscaled\(x\)", "s(x)", rest
    )
    assert meaning(by_alias, **{"package.other": moved}) == BEFORE
    by_module = "from package import other\n" + re.sub(
        r"\bscaled\(x\)", "other.scaled(x)", rest
    )
    assert meaning(by_module, **{"package.other": moved}) == BEFORE
    changed = moved.replace("+ shift", "- shift")
    assert meaning(by_module, **{"package.other": changed}) != BEFORE


def test_imports_inside_a_function_are_followed():
    lazy = ENTRY.replace("from package.maths import Method\n", "").replace(
        "    return", "    from package.maths import Method\n    return"
    )
    found = meaning(entry=lazy)
    assert len(found) == len(BEFORE)
    assert meaning(MATHS.replace("2.0", "2.5"), lazy) != found


def test_a_constructor_that_only_stores_counts_by_what_is_used():
    estimator = """
class Method:
    def __init__(self, rate=0.1, unused=5):
        self.rate = rate
        self.unused = unused

    def fit(self, x):
        return x * self.rate
"""
    before = meaning(estimator)
    shorter = estimator.replace(", unused=5", "").replace(
        "        self.unused = unused\n", ""
    )
    assert meaning(shorter) == before
    assert meaning(estimator.replace("rate=0.1", "rate=0.2")) != before


def test_a_class_that_a_module_registers_is_reached():
    registry = "METHODS = {}\ndef run(name, x):\n    return METHODS[name]().fit(x)\n"
    entry = f"from package.maths import Method\n{registry}METHODS['a'] = Method\n"
    before = meaning(entry=entry)
    assert meaning(MATHS.replace("2.0", "2.5"), entry) != before


@pytest.mark.parametrize("name", ["benchmark", "decomposition"])
def test_the_digest_of_a_study_covers_the_methods_that_it_fits(name, monkeypatch):
    kind = type(STUDIES[name])
    entry = [(kind.__module__, f"{kind.__name__}.run")]
    before = digest_of(entry)
    sources = {
        path: path.read_text() for path in (SOURCE / "objectives").glob("*elbo.py")
    }
    assert len(sources) == 2
    for path, text in sources.items():
        changed = text.replace("+", "-")
        monkeypatch.setattr(
            Path,
            "read_text",
            lambda self, *args, path=path, changed=changed: (
                changed if self == path else READ_TEXT(self, *args)
            ),
        )
        for cached in (digest._code, digest._meaning):
            cached.cache_clear()
        assert digest_of(entry) != before, path.name
    monkeypatch.undo()
    for cached in (digest._code, digest._meaning):
        cached.cache_clear()
    assert digest_of(entry) == before


def test_settings_count_and_an_unknown_entry_is_named():
    entry = [("ncai.study.experiments.theory", "Theory.run")]
    assert digest_of(entry) == digest_of(entry, {})
    assert digest_of(entry, {"rate": 1}) != digest_of(entry)
    with pytest.raises(ValueError, match="Nobody"):
        digest_of([("ncai.study.experiments.theory", "Nobody")])
