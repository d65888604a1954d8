"""The code in the README runs, in order, as a reader would run it."""

import re
from pathlib import Path

import pytest

from ncai import settings

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    # Few steps: this is about the code, not the fit.
    monkeypatch.setitem(settings.PRESETS["default"], "max_steps", 300)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(blocks) >= 4
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert "aleatoric" in printed
    assert "white noise of this size" in printed
    assert (tmp_path / "model.ncai").is_file()


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_exist(command):
    assert command in README.read_text()
    target = command.split()[1]
    makefile = (README.parent / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.M)
