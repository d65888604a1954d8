"""Is z white noise? Pictures of z, and its tests beside their reference levels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from scipy import stats

from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
from ncai.diagnostics.latents import diagnose_latents
from ncai.fitting.settings import EXACT_IN_LATENTS
from ncai.report.draw.axes import Axis, axis_for
from ncai.report.draw.feature_axis import feature_axis
from ncai.report.draw.svg import Chart
from ncai.report.inputs import Method, Subject, has_latents
from ncai.report.words import fixed

_MOST_DIMENSIONS = 3
_SIZE = (320, 230)
_NO_PATTERN = "White noise shows no pattern along the axis."
_MAY_RISE = (
    "Here a pattern is as it should be: y is made of x and z, so that z says where y "
    "lies among rows of the same x."
)


@dataclass(frozen=True, eq=False)
class MethodLatents:
    """Z of one method: the words, the numbers and the pictures."""

    method: Method
    diagnosis: LatentDiagnosis
    tests: list[dict[str, Any]]
    charts: list[dict[str, Any]]

    @property
    def state(self) -> str:
        """Whether z keeps what the model assumes of it: "good", "open" or "bad"."""
        found = self.diagnosis
        if found.collapsed or found.depends_on_inputs or found.differs_from_prior:
            return "bad"
        return "open" if found.hints_at_dependence else "good"


def latents(subject: Subject, feature: int) -> tuple[list[MethodLatents], str]:
    """What is known of z for each method that has one, and why there is nothing else.

    Args:
        subject: the report's.
        feature: number of the group of inputs that z is drawn against.
    """
    found, reason = [], ""
    for method in subject.models:
        if not has_latents(method.model):
            if method is subject.main:
                reason = (
                    "This model has no latent variable: its noise has the same width "
                    "everywhere, and there is nothing to check."
                )
            continue
        try:
            found.append(_of_method(subject, method, feature))
        except ValueError as error:
            if method is subject.main:
                reason = f"z cannot be shown: {error}"
    return found, reason


def _of_method(subject: Subject, method: Method, feature: int) -> MethodLatents:
    rows, mean, std = _latent_posterior(subject, method)
    prior_std = method.model.posterior_.latent_prior_std()
    x, y = subject.train[rows], subject.target[rows]
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    # What is judged is what is shown: the means, or a draw of each row.
    drawn = None
    if method.model.settings_["inference"] in EXACT_IN_LATENTS:
        drawn = method.model.sample_latents(subject.frame(x), y)
    diagnosis = diagnose_latents(
        (x - x.mean(axis=0)) / scale,
        y[:, None],
        mean,
        std,
        prior_std,
        judged="means" if drawn is None else "samples",
        latent_samples=drawn,
    )
    of = "mean" if drawn is None else "draw"
    shown = mean if drawn is None else drawn
    if drawn is None:
        drawn = mean + std * np.random.default_rng(0).standard_normal(mean.shape)
    main = method is subject.main
    group = subject.groups[feature]
    across = feature_axis(subject, group, 1)
    places = across.place(x[:, subject.columns(group)])
    charts = []
    for dimension in range(min(mean.shape[1], _MOST_DIMENSIONS if main else 1)):
        z = shown[:, dimension]
        name = "z" if mean.shape[1] == 1 else f"z{dimension + 1}"
        points = (subject, method, rows, z, prior_std, of)
        charts.append(_against(*points, places, across.axis, name, _NO_PATTERN))
        if main:
            of_y = axis_for(y, subject.y_label, 0.03)
            charts.append(_against(*points, y, of_y, name, _MAY_RISE))
            charts.append(_histogram(method, drawn[:, dimension], prior_std, name))
    return MethodLatents(method, diagnosis, _tests(diagnosis), charts)


def _latent_posterior(subject: Subject, method: Method):
    """Rows of the training table, and mean and std of their z.

    As the fit left them; of a model that has none (it was read from a file, or fitted
    to other rows) they are inferred anew.
    """
    model = method.model
    index = getattr(model, "train_index_", None)
    stored = getattr(model, "latent_posterior_", None)
    if stored is not None and index is not None and index.max() < len(subject.train):
        scaled = model.scaling_.inputs(subject.train[index])
        if np.allclose(scaled, model.training_rows_.inputs):
            return index, stored.mean, stored.std
    rows = subject.shown
    inferred = model.latent_posterior(
        subject.frame(subject.train[rows]), subject.target[rows]
    )
    return rows, inferred.mean, inferred.std


def _against(
    subject, method, rows, z, prior_std, of, values, axis, name, caption
) -> dict[str, Any]:
    places = {int(position): place for place, position in enumerate(subject.shown)}
    chosen = np.array([int(row) in places for row in rows]) & np.isfinite(values)
    reach = 1.1 * max(2.4 * prior_std, float(np.abs(z).max()))
    chart = Chart(
        axis,
        Axis(-reach, reach, f"{of} of {name}"),
        *_SIZE,
        title=f"{name} against {axis.label}",
        x_ticks=5,
    )
    low, high = chart.x_axis.low, chart.x_axis.high
    chart.bar(low, high, -2 * prior_std, 2 * prior_std, "chance")
    chart.line([low, high], [0, 0], "reference")
    chart.points(
        values[chosen],
        z[chosen],
        "dots",
        [places[int(row)] for row in rows[chosen]],
        method.key,
        radius=2.6,
    )
    return {
        "svg": chart.render(),
        "title": f"{name} against {axis.label}",
        "caption": f"{caption} Grey: two standard deviations of the prior.",
    }


def _histogram(method: Method, sample, prior_std, name) -> dict:
    reach = max(3.5 * prior_std, float(np.abs(sample).max()))
    density, edges = np.histogram(sample, bins=30, range=(-reach, reach), density=True)
    grid = np.linspace(-reach, reach, 161)
    prior = stats.norm.pdf(grid, scale=prior_std)
    chart = Chart(
        Axis(-reach, reach, f"{name}, one draw for each row"),
        Axis(0, 1.1 * max(float(density.max()), float(prior.max())), "density"),
        *_SIZE,
        title=f"Histogram of {name} and its prior",
        x_ticks=5,
    )
    for height, left, right in zip(density, edges[:-1], edges[1:], strict=True):
        if height > 0:
            chart.bar(left, right, 0, height, "bar", method.key)
    chart.line(grid, prior, "mean")
    return {
        "svg": chart.render(),
        "title": f"{name} and its prior",
        "caption": "Bars: draws of z from its posterior, one a row. Line: the prior "
        "that predictions draw z from. They should agree.",
    }


def _tests(found: LatentDiagnosis) -> list[dict[str, Any]]:
    lowest, highest = found.std_ratio_limits
    judged = "the mean" if found.judged == "means" else "a draw"
    tests = [
        (
            "MI(x; z)",
            f"mutual information of x and {judged} of z, nats",
            found.mi_judged,
            found.mi_reference,
            not found.depends_on_inputs,
        ),
        (
            "HZ(z)",
            "Henze\u2013Zirkler distance of z from a Gaussian",
            found.hz_judged,
            found.hz_reference,
            found.shape_is_gaussian,
        ),
        (
            "KS(z, prior)",
            "largest gap between the cdfs of drawn z and prior",
            found.ks_sample,
            found.ks_limit,
            found.ks_sample <= found.ks_limit,
        ),
    ]
    rows = [_gauge(*test) for test in tests]
    rows.append(
        {
            "name": "width of q(z)",
            "what": "standard deviation of z, in units of the prior's",
            "value": fixed(found.std_ratio, 2),
            "reference": f"{fixed(lowest, 2)} to {fixed(highest, 2)}",
            "good": found.width_matches_prior,
            "share": None,
        }
    )
    return rows


def _gauge(name, what, value, reference, good) -> dict[str, Any]:
    """A row of the table; the bar is full at twice the reference."""
    share = min(1.0, value / (2 * reference)) if reference > 0 else float(value > 0)
    return {
        "name": name,
        "what": what,
        "value": fixed(value, 2),
        "reference": f"below {fixed(reference, 2)}",
        "good": bool(good),
        "share": round(100 * share),
    }


def verdict(item: MethodLatents) -> Markup | str:
    """Both sentences of the diagnosis."""
    return f"{item.diagnosis.independence_verdict} {item.diagnosis.prior_verdict}"
