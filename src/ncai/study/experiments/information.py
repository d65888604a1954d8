"""`information`: why I(x; z) is not estimated by a KL divergence (paper, Appendix D.1).

The paper's estimator is the mean over rows of E_q(z_n) log q(z_n) / q(z), where q(z) is
the aggregated posterior. It does not use x: if each x has one y, it measures how well z
identifies a row. Here the truth is known. The latent means have correlation r with x,
q(z_n) is a Gaussian of width s around them, and I(x; z) has a closed form.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from ncai.stats.correlation import reference_squared_correlation
from ncai.stats.knn import mutual_information
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.output.tables import Entry, Table, done_cells

CORRELATIONS = (0.0, 0.5, 0.9)
WIDTHS = (0.05, 0.2, 0.8)
SAMPLES = 8  # of each q(z_n); each needs a mean over all rows
ROWS = {"smoke": 60, "small": 200, "paper": 500}
ESTIMATES = ("truth", "kl", "ksg_of_samples", "ksg_of_means", "squared_correlation")


@dataclass(frozen=True)
class Information:
    """The study `information`."""

    name: str = "information"
    title: str = "Estimators of I(x; z), beside the truth (appendix on I(x; z))"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """A cell for each correlation, width and draw."""
        del store
        return [
            Cell.of(self.name, r=r, width=width, draw=draw, num_rows=ROWS[scale.name])
            for r in CORRELATIONS
            for width in WIDTHS
            for draw in range(scale.draws)
        ]

    def run(self, cell: Cell) -> Outcome:
        """Compute all estimates for one draw of the rows."""
        rng = np.random.default_rng(cell["draw"])
        r, width, count = cell["r"], cell["width"], cell["num_rows"]
        x = rng.standard_normal(count)
        means = r * x + np.sqrt(1 - r**2) * rng.standard_normal(count)
        samples = means + width * rng.standard_normal((SAMPLES, count))
        values, errors = kl_estimate(means, width, samples)
        row = {
            "truth": true_information(r, width),
            "kl": values,
            "kl_error": errors,
            "ksg_of_samples": mutual_information(x, samples[0]),
            "ksg_of_means": mutual_information(x, means),
            "squared_correlation": reference_squared_correlation(
                x[:, None], means[:, None]
            ),
        }
        return Outcome({name: float(value) for name, value in row.items()}, {})


def true_information(r: float, width: float) -> float:
    """I(x; z) in nats: x and z = mean + noise of this width are jointly Gaussian."""
    squared = r**2 / (1 + width**2)
    return -0.5 * float(np.log1p(-squared))


def kl_estimate(
    means: np.ndarray, width: float, samples: np.ndarray
) -> tuple[float, float]:
    """The paper's estimator, and its Monte Carlo standard error.

    Args:
        means: means of q(z_n), [N].
        width: standard deviation of every q(z_n).
        samples: samples of every q(z_n), [S, N].
    """
    own = norm.logpdf(samples, means, width)
    others = norm.logpdf(samples[..., None], means, width)
    aggregated = logsumexp(others, axis=-1) - np.log(len(means))
    ratios = own - aggregated
    error = ratios.mean(axis=1).std(ddof=1) / np.sqrt(len(samples))
    return float(ratios.mean()), float(error)


def tables(scale: Scale, store: Store) -> list[Table]:
    """Return a table of the estimates by correlation and width, over draws."""
    found = [(dict(cell.settings), row) for cell, row in _done(scale, store)]
    rows = []
    for r in CORRELATIONS:
        for width in WIDTHS:
            own = [row for s, row in found if (s["r"], s["width"]) == (r, width)]
            if own:
                shown = [
                    str(Entry.of([row[name] for row in own])) for name in ESTIMATES
                ]
                rows.append((f"{r:g}", f"{width:g}", *shown))
    columns = (
        "correlation",
        "width of q(z_n)",
        "I(x; z)",
        "KL estimator",
        "KSG of samples",
        "KSG of means",
        "PC(x)",
    )
    note = (
        "Nats, mean ± std over draws; PC is a squared correlation. The KL estimator "
        "cannot exceed the log of the number of rows, and is large wherever q(z_n) is "
        "narrow, whether or not z depends on x."
    )
    if not rows:
        return []
    return [Table("information", INFORMATION.title, columns, tuple(rows), note)]


def _done(scale: Scale, store: Store) -> list[tuple[Cell, dict]]:
    return done_cells(INFORMATION, scale, store)


INFORMATION = Information()
