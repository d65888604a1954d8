"""The pictures of docs/images, from short fits; `ncai demo` makes demo.png.

    python scripts/docs_images.py
    ncai demo && python scripts/docs_images.py --report demo/report.html

With --report it makes only report.png: two sections of a report, side by side, as a
browser shows them. That needs chromium, found on the PATH, and playwright.

The paper's methods train for few steps here, which takes minutes and shows the pattern,
not the best fit. The decomposition of the uncertainty uses the default settings.
"""

import io
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ncai import MFVI, NCAI, BNNLVRegressor, make_dataset, plot

IMAGES = Path(__file__).parents[1] / "docs" / "images"
REPORT_IMAGE = IMAGES / "report.png"
PAGE_SIZE: Any = {"width": 900, "height": 1150}
PART = "What the noise looks like"
# Heavy-Tail with its true noise and prior, as in `ncai demo`.
SETTINGS = {
    "preset": "paper",
    "standardize": False,
    "noise_variance": 0.1,
    "max_steps": 6_000,
    "n_restarts": 5,
    "random_state": 0,
}
METHODS = {
    "MFVI": MFVI(latent_variance=0.01),
    "NCAI": NCAI(latent_variance=0.01, input_tolerance=0.1, target_tolerance=1.0),
}


def figure(columns: int, width: float, height: float):
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made, made.subplots(1, columns)


def save(made: Figure, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    made.savefig(IMAGES / name, dpi=80)
    print(IMAGES / name)


def truth(data) -> None:
    """One function of x and z: each value of z gives a curve."""
    made, (left, right) = figure(2, 9, 3.6)
    x = np.linspace(-4, 4, 200)[:, None]
    width = data.truth.latent_var**0.5
    for units, shade in zip((-2, -1, 0, 1, 2), (0.35, 0.6, 1, 0.6, 0.35), strict=True):
        latents = np.full_like(x, units * width)
        left.plot(
            x,
            data.oracle.function(x, latents),
            color=plot.COLOURS["NCAI"],
            alpha=shade,
            linestyle="--" if units < 0 else "-",
            label=f"z = {units} prior widths",
        )
    left.legend(frameon=False, fontsize=8)
    left.set(xlabel="x", ylabel="f(x, z)", title="one curve for each value of z")
    rows = data.train
    plot.density(
        data.oracle, rows.inputs, rows.targets, right, colour=plot.COLOURS["truth"]
    )
    right.set_title("z drawn anew for each row: the density of y")
    save(made, "latent_curves.png")


def true_cdf(oracle, inputs, targets) -> np.ndarray:
    grid = np.linspace(targets.min() - 3, targets.max() + 3, 2_000)
    density = np.exp(oracle.log_prob_grid(inputs, grid))
    below = np.cumsum(density, axis=1) * (grid[1] - grid[0])
    return np.array(
        [np.interp(y, grid, row) for y, row in zip(targets[:, 0], below, strict=True)]
    )


def memorising(data, models) -> None:
    """z against x, coloured by where y lies among its neighbours."""
    made, axes = figure(3, 12, 3.6)
    rows = data.train
    share = true_cdf(data.oracle, rows.inputs, rows.targets)
    panels = [("the z that made the data", rows.latents / data.truth.latent_var**0.5)]
    for name, model in models.items():
        index = model.train_index_
        means = np.full((len(rows.inputs), 1), np.nan)
        means[index] = (
            model.latent_posterior_.mean / model.posterior_.latent_prior_std()
        )
        panels.append((f"z inferred by {name}", means))
    for ax, (title, latents) in zip(axes, panels, strict=True):
        dots = ax.scatter(rows.inputs, latents, c=share, cmap="viridis", s=12)
        for edge in (-2, 2):
            ax.axhline(edge, color="grey", linestyle="--", linewidth=0.8)
        ax.set(title=title, xlabel="x", ylim=(-4.5, 4.5))
    axes[0].set_ylabel("z, in widths of its prior")
    made.colorbar(dots, ax=axes, label="share of p(y|x) below y")
    save(made, "memorising.png")


def split() -> None:
    """Three clusters of rows (Depeweg): epistemic uncertainty grows between them."""
    data = make_dataset("depeweg", 0)
    rows = data.train
    model = BNNLVRegressor(random_state=0).fit(rows.inputs, rows.targets[:, 0])
    made, (left, right) = figure(2, 10, 3.8)
    x = np.linspace(-7, 7, 150)[:, None]
    plot.density(model, rows.inputs, rows.targets, left, x_limits=(-7, 7))
    plot.decomposition(model, x, right)
    save(made, "split.png")


def report_image(report: str) -> None:
    """Two parts of a report, as a browser shows them."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=PAGE_SIZE, color_scheme="light")
        page.goto(Path(report).resolve().as_uri())
        shots = [page.screenshot()]
        page.get_by_role("heading", name=PART).evaluate("e => e.scrollIntoView()")
        page.wait_for_timeout(2000)  # it scrolls smoothly
        shots.append(page.screenshot())
        browser.close()
    parts = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
    gap = 24
    size = (2 * PAGE_SIZE["width"] + gap, PAGE_SIZE["height"])
    whole = Image.new("RGB", size, "#9a9a9a")
    for number, part in enumerate(parts):
        whole.paste(part, (number * (PAGE_SIZE["width"] + gap), 0))
    smaller = whole.resize((1200, round(1200 * whole.height / whole.width)))
    smaller.quantize(128).save(REPORT_IMAGE, optimize=True)


def main() -> None:
    if "--report" in sys.argv:
        report_image(sys.argv[sys.argv.index("--report") + 1])
        return
    data = make_dataset("heavy_tail", 0)
    truth(data)
    models = {
        name: BNNLVRegressor(inference=method, **SETTINGS).fit(
            data.train.inputs,
            data.train.targets[:, 0],
            X_valid=data.valid.inputs,
            y_valid=data.valid.targets[:, 0],
        )
        for name, method in METHODS.items()
    }
    memorising(data, models)
    split()


if __name__ == "__main__":
    main()
