"""The demo's files; what it prints is tested with the command line."""

import re

from ncai.demo import PICTURE, REPORT, run_demo


def test_quick_demo_writes_picture_and_report(tmp_path):
    said = []
    rows = run_demo(tmp_path, quick=True, tell=said.append)
    assert [row.colour_name for row in rows] == ["BNN", "MFVI", "NCAI"]
    assert said[-1] == "Writing the report"
    assert sorted(path.name for path in tmp_path.iterdir()) == [PICTURE, REPORT]
    page = (tmp_path / REPORT).read_text()
    # NCAI is the subject; the others and the truth can be switched on.
    shown = re.findall(r'id="show-(\w+)" (checked)?> <span>([^<]+)</span>', page)
    assert shown == [
        ("m0", "checked", "NCAI"),
        ("m1", "", "MFVI"),
        ("m2", "", "BNN"),
        ("truth", "", "Truth"),
    ]
    assert "ncai demo --seed 0 --quick" in page
    for row in rows:
        score = f"{row.log_likelihood:.3f}".replace("-", "\u2212")
        assert f">{score}</td>" in page
