"""The demo, as one sees it in a terminal, and the files it leaves."""

import re

from command_line import refused, run
from ncai.cli import demo
from ncai.cli.demo import PICTURE, REPORT


def test_quick_demo_prints_a_table_and_writes_picture_and_report(tmp_path):
    folder = tmp_path / "new" / "folder"
    result = run("demo", "--quick", "--out", folder)
    assert result.exit_code == 0, result.stderr
    for text in ("BNN+LV, MFVI", "BNN+LV, NCAI", "White noise", "coverage"):
        assert text in result.stdout
    assert "3 of 3" in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == [PICTURE, REPORT]
    assert (folder / PICTURE).read_bytes().startswith(b"\x89PNG")
    page = (folder / REPORT).read_text()
    # NCAI is the subject; the others and the truth can be switched on.
    shown = re.findall(r'id="show-(\w+)" (checked)?> <span>([^<]+)</span>', page)
    assert shown == [
        ("m0", "checked", "NCAI"),
        ("m1", "", "MFVI"),
        ("m2", "", "BNN"),
        ("truth", "", "Truth"),
    ]
    assert "ncai demo --seed 0 --quick" in page
    # The table and the report tell the same scores.
    for name in ("BNN", "BNN+LV, MFVI", "BNN+LV, NCAI"):
        (line,) = [s for s in result.stdout.splitlines() if f" {name} " in s]
        score = re.search(r"[-\u2212]\d+\.\d{3}", line).group()
        assert f">{score.replace('-', chr(0x2212))}</td>" in page


def test_demo_replaces_no_file_unasked(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(demo, "run_demo", lambda out, *_: asked.append(out) or [])
    monkeypatch.setattr(demo, "table", lambda rows: "")
    (tmp_path / REPORT).write_text("mine")
    assert refused(run("demo", "--quick", "--out", tmp_path), REPORT, "--force")
    assert not asked
    assert run("demo", "--quick", "--out", tmp_path, "--force").exit_code == 0
    assert asked == [tmp_path]
