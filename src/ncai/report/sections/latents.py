"""Is z white noise? Pictures of z, and tests with their reference levels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from ncai.diagnostics.curves import as_inputs
from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
from ncai.diagnostics.latents import diagnose_latents
from ncai.report.axes import Axis, axis_for
from ncai.report.sections.noise import chosen_features
from ncai.report.subject import Method, Subject, has_latents, shared
from ncai.report.svg import Chart
from ncai.report.words import fixed

_MOST_DIMENSIONS = 3
_SIZE = (320, 230)
_NO_PATTERN = "White noise shows no pattern along the axis."
_MAY_RISE = (
    "A pattern is expected here: y depends on x and z, so among rows with the same x, "
    "z determines where y lies."
)


@dataclass(frozen=True, eq=False)
class MethodLatents:
    """The z of one method: its diagnosis, the table of tests and the pictures."""

    method: Method
    diagnosis: LatentDiagnosis
    tests: list[dict[str, Any]]
    charts: list[dict[str, Any]]

    @property
    def state(self) -> str:
        """Whether z is as the model assumes: "good", "open" or "bad"."""
        found = self.diagnosis
        if found.collapsed or found.depends_on_inputs or found.differs_from_prior:
            return "bad"
        return "open" if found.hints_at_dependence else "good"

    @property
    def verdict(self) -> str:
        """Both sentences of the diagnosis."""
        return f"{self.diagnosis.independence_verdict} {self.diagnosis.prior_verdict}"


@dataclass(frozen=True, eq=False)
class Latents:
    """The contents of the section, which the template shows.

    Attributes:
        methods: each method that has a z which can be shown.
        missing: why the report's own model is not among them; empty if it is.
    """

    methods: list[MethodLatents]
    missing: str

    def of(self, method: Method) -> MethodLatents | None:
        """Return the z of one method, if it can be shown."""
        return next((one for one in self.methods if one.method is method), None)


@dataclass(frozen=True, eq=False)
class _Values:
    """The z of some training rows, inferred by one method.

    Attributes:
        rows: numbers of the training rows, [N].
        mean: posterior means of z, [N, K].
        std: posterior standard deviations of z, [N, K].
        drawn: one posterior draw of z for each row, [N, K].
        shown: the values that pictures and tests use: `mean` or `drawn`.
        kind: which of the two `shown` is: "mean" or "draw".
        prior_std: standard deviation of the prior.
    """

    rows: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    drawn: np.ndarray
    shown: np.ndarray
    kind: str
    prior_std: float

    def name(self, dimension: int) -> str:
        """The name of a dimension of z."""
        return "z" if self.mean.shape[1] == 1 else f"z{dimension + 1}"


@shared
def latents(subject: Subject) -> Latents:
    """Test and draw z for each method that has one."""
    found, missing = [], ""
    for method in subject.models:
        if not has_latents(method.model):
            if method is subject.main:
                missing = (
                    "This model has no latent variable: its noise has the same width "
                    "everywhere, and there is nothing to check."
                )
            continue
        try:
            found.append(_of_method(subject, method))
        except ValueError as error:
            if method is subject.main:
                missing = f"z cannot be shown: {error}"
    return Latents(found, missing)


def _of_method(subject: Subject, method: Method) -> MethodLatents:
    values = _latent_values(subject, method)
    diagnosis = _diagnose(subject, values)
    return MethodLatents(
        method, diagnosis, _tests(diagnosis), _charts(subject, method, values)
    )


def _latent_values(subject: Subject, method: Method) -> _Values:
    rows, mean, std = _latent_posterior(subject, method)
    # Under exact inference, draws of z look like white noise; their means need not.
    if method.model.settings_.method.supports.exact_latents:
        drawn = method.model.sample_latents(
            as_inputs(subject.model, subject.train[rows]), subject.target[rows]
        )
        shown, kind = drawn, "draw"
    else:
        drawn = mean + std * np.random.default_rng(0).standard_normal(mean.shape)
        shown, kind = mean, "mean"
    prior_std = method.model.posterior_.latent_prior_std()
    return _Values(rows, mean, std, drawn, shown, kind, prior_std)


def _latent_posterior(subject: Subject, method: Method):
    """Rows of the training table, and the means and standard deviations of their z.

    They come from the fit. A model without them, because it was read from a file or
    fitted to other rows, infers them again.
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
        as_inputs(subject.model, subject.train[rows]), subject.target[rows]
    )
    return rows, inferred.mean, inferred.std


def _diagnose(subject: Subject, values: _Values) -> LatentDiagnosis:
    x, y = subject.train[values.rows], subject.target[values.rows]
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    draws = values.kind == "draw"
    return diagnose_latents(
        (x - x.mean(axis=0)) / scale,
        y[:, None],
        values.mean,
        values.std,
        values.prior_std,
        judged="samples" if draws else "means",
        latent_samples=values.drawn if draws else None,
    )


def _charts(subject: Subject, method: Method, values: _Values) -> list[dict[str, Any]]:
    main = method is subject.main
    group = subject.groups[chosen_features(subject)[0]]
    across = subject.axis_of(group, 1)
    x = across.place(subject.train[values.rows][:, subject.columns(group)])
    y = subject.target[values.rows]
    charts = []
    for dimension in range(min(values.mean.shape[1], _MOST_DIMENSIONS if main else 1)):
        chart = _scatter(subject, method, values, dimension, x, across.axis)
        charts.append(_figure(chart, _NO_PATTERN))
        if main:
            upright = axis_for(y, subject.y_label, 0.03)
            chart = _scatter(subject, method, values, dimension, y, upright)
            charts.append(_figure(chart, _MAY_RISE))
            charts.append(_histogram(method, values, dimension))
    return charts


def _scatter(
    subject: Subject, method: Method, values: _Values, dimension: int, across, axis
) -> Chart:
    """One dimension of z against an input or the target, for the rows shown."""
    z, name = values.shown[:, dimension], values.name(dimension)
    places = {int(position): place for place, position in enumerate(subject.shown)}
    chosen = np.array([int(row) in places for row in values.rows])
    chosen &= np.isfinite(across)
    reach = 1.1 * max(2.4 * values.prior_std, float(np.abs(z).max()))
    chart = Chart(
        axis,
        Axis(-reach, reach, f"{values.kind} of {name}"),
        *_SIZE,
        title=f"{name} against {axis.label}",
        x_ticks=5,
    )
    low, high = chart.x_axis.low, chart.x_axis.high
    chart.bar(low, high, -2 * values.prior_std, 2 * values.prior_std, "chance")
    chart.line([low, high], [0, 0], "reference")
    chart.points(
        across[chosen],
        z[chosen],
        "dots",
        [places[int(row)] for row in values.rows[chosen]],
        method.key,
        radius=2.6,
    )
    return chart


def _figure(chart: Chart, caption: str) -> dict[str, Any]:
    return {
        "svg": chart.render(),
        "title": chart.title,
        "caption": f"{caption} Grey: two standard deviations of the prior.",
    }


def _histogram(method: Method, values: _Values, dimension: int) -> dict[str, Any]:
    sample, name = values.drawn[:, dimension], values.name(dimension)
    prior_std = values.prior_std
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
        "caption": "Bars: posterior draws of z, one per row. Line: the prior, from "
        "which predictions draw z. The two should agree.",
    }


def _tests(found: LatentDiagnosis) -> list[dict[str, Any]]:
    lowest, highest = found.std_ratio_limits
    judged = "the mean" if found.judged == "means" else "a draw"
    tests = [
        (
            "MI(x; z)",
            f"mutual information of x and {judged} of z, in nats",
            found.mi_judged,
            found.mi_limit,
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
            "largest gap between the cdfs of posterior draws of z and the prior",
            found.ks_sample,
            found.ks_limit,
            found.ks_sample <= found.ks_limit,
        ),
    ]
    rows = [_gauge(*test) for test in tests]
    rows.append(
        {
            "name": "width of q(z)",
            "what": "standard deviation of z, divided by that of the prior",
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
