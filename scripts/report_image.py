"""docs/report.png: two parts of a report, side by side, as a browser shows them.

    ncai demo && python scripts/report_image.py demo/report.html

Needs chromium, found on the PATH, and playwright.
"""

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

OUT = Path(__file__).parents[1] / "docs" / "report.png"
SIZE: Any = {"width": 900, "height": 1150}
PART = "What the noise looks like"


def main(report: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(Path(report).resolve().as_uri())
        shots = [page.screenshot()]
        page.get_by_role("heading", name=PART).evaluate("e => e.scrollIntoView()")
        page.wait_for_timeout(2000)  # it scrolls smoothly
        shots.append(page.screenshot())
        browser.close()
    parts = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
    gap = 24
    whole = Image.new("RGB", (2 * SIZE["width"] + gap, SIZE["height"]), "#9a9a9a")
    for number, part in enumerate(parts):
        whole.paste(part, (number * (SIZE["width"] + gap), 0))
    smaller = whole.resize((1200, round(1200 * whole.height / whole.width)))
    smaller.quantize(128).save(OUT, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
