"""The command itself: help, start, exit codes, and what a reader of a pipe sees."""

import subprocess
import sys
from pathlib import Path

import pytest

from command_line import refused, run
from ncai import __version__
from ncai.cli._arguments import without_infinity

COMMANDS = ("demo", "fit", "predict", "evaluate", "diagnose", "inspect", "compare")
COMMANDS = (*COMMANDS, "datasets", "datasets list", "datasets get", "bench")
COMMANDS = (*COMMANDS, "bench quality", "study", "study run", "study status")
COMMANDS = (*COMMANDS, "study tables", "study figures", "study report")


@pytest.mark.parametrize("command", [[], *(name.split() for name in COMMANDS)])
def test_help_shows_an_example(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Example:\n    ncai {' '.join(command)}" in result.stdout


def test_version():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"ncai {__version__}\n")


@pytest.mark.parametrize(
    ("words", "place", "wanted"),
    [("ncai ins", 1, "inspect"), ("ncai fit --tar", 2, "--target")],
)
def test_the_shell_completes(words, place, wanted):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(place)}
    result = run(env={"_NCAI_COMPLETE": "complete_bash", **asked}, prog_name="ncai")
    assert result.stdout.split() == [wanted]


def test_import_and_help_load_nothing_heavy():
    program = (
        "import sys, ncai\n"
        "from ncai.cli.app import app\n"
        f"for command in {COMMANDS!r}:\n"
        "    app([*command.split(), '--help'], standalone_mode=False)\n"
        "heavy = {'jax', 'sklearn', 'pandas', 'scipy', 'matplotlib', 'numpy'}\n"
        "sys.exit(f'loaded: {heavy & set(sys.modules)}' "
        "if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_usage_errors_exit_with_2():
    result = run("fit", "data.csv")
    assert result.exit_code == 2
    assert "--target" in result.stderr


def test_a_reader_that_leaves_is_no_error():
    program = (
        "from ncai.cli import app as cli\n"
        "def flood():\n    print('y' * 10**6)\n"
        "cli._add_command(flood, [])\n"
        "cli.app(['flood'])\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait() == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_standard_output_is_one_sentence(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ncai", "inspect", folder / "h.ncai"],
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 2
    assert done.stderr == b"Error: No space left on device.\n"
    device = run("predict", folder / "h.ncai", "x.csv", "--out", "/dev/full", "--force")
    assert refused(device, "not a file that can be replaced")


def test_json_has_null_for_what_it_cannot_say():
    found = {"a": [1.0, float("nan")], "b": {"c": (float("inf"), "x")}, "d": None}
    plain = {"a": [1.0, None], "b": {"c": [None, "x"]}, "d": None}
    assert without_infinity(found) == plain
