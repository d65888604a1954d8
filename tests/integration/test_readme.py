"""The code in the README runs, in order, as a reader would run it."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ncai.cli import app as cli

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.usefixtures("short_fits")
def test_the_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python)?\n(.*?)```", README.read_text(), re.S)
    assert len(blocks) >= 6
    names: dict = {}
    for language, block in blocks:
        if language:
            exec(compile(block, str(README), "exec"), names)
            continue
        for line in block.splitlines():
            if line.startswith("ncai "):
                result = CliRunner().invoke(cli.app, line.split()[1:])
                assert result.exit_code == 0, result.stderr
    printed = capsys.readouterr().out
    assert "aleatoric" in printed
    assert "white noise" in printed
    written = {path.name for path in tmp_path.iterdir()}
    assert written >= {"waves.ncai", "table.ncai", "predictions.csv"}


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_exist(command):
    assert command in README.read_text()
    target = command.split()[1]
    makefile = (README.parent / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.M)
