"""The house rules: one way for imports, short functions, small files.

Everything here reads the syntax tree alone, so it takes about a second.
"""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ncai"
# Low to high: a package imports only from those before it.
LAYERS = (
    "types",
    "runtime",
    "preprocessing",
    "stats",
    "model",
    "objectives",
    "training",
    "inference",
    "predictive",
    "fitting",
    "diagnostics",
    "estimators",
    "interop",
    "datasets",
    "comparison",
    "tables",
    "plot",
    "report",
    "study",
    "cli",
)
MOST_MODULES_AT_THE_TOP = 8
MOST_FILES_IN_A_FOLDER = 16  # with its __init__
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60
MOST_BRANCHES = 10
MOST_PARAMETERS = 7
MOST_TRACKED_FILES = 300
# Constructors and commands may have more parameters: they are lists of settings.
FREE_OF_THE_PARAMETER_LIMIT = ("src/ncai/cli/",)

SOURCES = sorted(
    path
    for folder in ("src", "benchmarks", "scripts")
    for path in (ROOT / folder).rglob("*.py")
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    """Modules that a file imports anywhere, lazily too, but for types alone."""
    tree = tree_of(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "ncai":
                yield from (f"ncai.{alias.name}" for alias in node.names)
            else:
                yield node.module


def functions_of(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            yield f"{name_of(path)}: {node.name}", node


def test_imports_run_one_way():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        own = layer_of(path)
        if own not in LAYERS:  # __init__ and __main__ open the house, they hold nothing
            continue
        for module in imports_of(path):
            parts = module.split(".")
            if parts[0] != "ncai" or len(parts) == 1 or parts[1] == "__version__":
                continue
            if parts[1] not in LAYERS[: LAYERS.index(own) + 1]:
                wrong.append(f"{name_of(path)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_nothing_in_the_package_imports_what_is_outside_the_wheel():
    wrong = [
        f"{name_of(path)} imports {module}"
        for path in PACKAGE.rglob("*.py")
        if layer_of(path) != "cli"  # `ncai bench` does, from a clone alone
        for module in imports_of(path)
        if module.split(".")[0] in ("benchmarks", "tests", "scripts")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_two_modules_import_each_other():
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        names[".".join(parts).removesuffix(".__init__")] = path
    edges = {
        name: {module for module in imports_of(path) if module in names} - {name}
        for name, path in names.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            raise AssertionError(" -> ".join([*trail[trail.index(name) :], name]))
        if name not in done:
            for other in sorted(edges[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in sorted(edges):
        visit(name, ())


def test_few_modules_at_the_top_and_few_files_in_a_folder():
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_MODULES_AT_THE_TOP
    for folder in {path.parent for path in SOURCES}:
        count = len(list(folder.glob("*.py")))
        assert count <= MOST_FILES_IN_A_FOLDER, f"{name_of(folder)} has {count} files"


def tracked_files() -> list[str]:
    """What git tracks; outside a checkout, the files of the folders that it tracks."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True
        )
        if listed.returncode == 0:
            return listed.stdout.splitlines()
    except FileNotFoundError:
        pass
    folders = ("benchmarks", "docs", "results", "scripts", "src", "tests")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return [
        name_of(path) for path in found if path.is_file() and not made_by_runs(path)
    ]


def made_by_runs(path: Path) -> bool:
    return "__pycache__" in path.parts or path.suffix == ".pyc"


def test_the_repository_has_few_files():
    assert len(tracked_files()) < MOST_TRACKED_FILES


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_and_functions_are_short(path):
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES_OF_A_FILE
    wrong = []
    for name, function in functions_of(path):
        lines = (function.end_lineno or 0) - function.lineno + 1
        if function.name != "__init__" and lines > MOST_LINES_OF_A_FUNCTION:
            wrong.append(f"{name} has {lines} lines")
        if (found := branches(function)) > MOST_BRANCHES:
            wrong.append(f"{name} has {found} branches")
        count = len(parameters(function))
        free = function.name == "__init__" or name.startswith(
            FREE_OF_THE_PARAMETER_LIMIT
        )
        if not free and count > MOST_PARAMETERS:
            wrong.append(f"{name} has {count} parameters")
    assert not wrong, "\n".join(wrong)


def branches(function: ast.FunctionDef) -> int:
    """Ways that a function may take, those of functions inside it left out."""
    count, todo = 0, list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue
        count += isinstance(node, ast.If | ast.For | ast.While | ast.ExceptHandler)
        todo += ast.iter_child_nodes(node)
    return count


def parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [a.arg for a in listed if a.arg not in ("self", "cls")]
