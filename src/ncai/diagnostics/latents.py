"""Do the latents of a fit keep what the model assumes of them?

The model draws z from its prior, independently of x. A fit that explains y by a z that
depends on x, or that is not distributed like the prior, predicts badly at new points,
where z can only come from the prior. `diagnose_latents` measures both and compares each
number with what white noise of the same size would give.
"""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ncai.stats.correlation import (
    reference_offdiagonal_norm,
    reference_squared_correlation,
)
from ncai.stats.divergence import aggregated_posterior_divergences
from ncai.stats.henze_zirkler import henze_zirkler_test, hz_quantile
from ncai.stats.knn import mutual_information, permuted_mutual_information
from ncai.stats.scores import ks_statistic

_NO_INFORMATION = "z carries no information: all its means are equal"
# 1 - 0.9 is a little below 0.1, which a p-value of exactly 0.1 must not notice.
_ROUNDING = 1e-9
# How much wider or narrower than its prior q(z) may be beyond what chance explains: a
# prediction's spread through z is then off by as much, which is little beside what
# mean-field inference does to the weights. Without it, any fit to many rows would fail.
_WIDTH_TOLERANCE = 0.2
# The distance of N(0, 1) and a Gaussian that much wider, where their densities cross.
_CROSSING = np.sqrt(
    2 * np.log(1 + _WIDTH_TOLERANCE) / (1 - (1 + _WIDTH_TOLERANCE) ** -2)
)
_KS_TOLERANCE = float(
    stats.norm.cdf(_CROSSING) - stats.norm.cdf(_CROSSING / (1 + _WIDTH_TOLERANCE))
)


@dataclass(frozen=True)
class LatentDiagnosis:
    """What `diagnose_latents` found. Information in nats, estimates below 0 shown as 0.

    A `_reference` is the value that noise of this size stays below with probability
    `level`; a `_p_value` the chance of noise to reach what was found.

    Attributes:
        judged: whether verdicts are on the "means" of z or on "samples" of it.
        num_rows: rows given.
        num_rows_used: rows that MI, PC and the divergences were computed on.
        latent_dim: number K of latents.
        level: probability level of references and verdicts.
        collapsed: all rows have the same latent means.
        mi_x_mean: mutual information of inputs and latent means.
        mi_x_sample: the same with one posterior sample of z per row.
        mi_reference: of the one that is judged, by permutation of rows.
        mi_p_value: of the one that is judged, by permutation of rows.
        pc_x: mean squared correlation of inputs and latent means.
        pc_x_reference: by permutation of rows.
        pc_y: mean squared correlation of targets and latent means.
        pc_y_reference: by permutation of rows.
        hz: Henze-Zirkler statistic of the latent means; 4 N if they are singular.
        hz_p_value: by the log-normal approximation.
        hz_expected: mean for Gaussian noise.
        hz_reference: by the log-normal approximation.
        hz_singular: the means do not span all K dimensions.
        hz_sample: Henze-Zirkler statistic of one sample of z per row, which is a
            sample of the aggregated posterior q(z).
        ks: largest Kolmogorov-Smirnov distance of latent means and prior.
        ks_p_value: its p-value.
        ks_sample: the same distance for the sample of q(z).
        ks_sample_p_value: its p-value.
        js: Jensen-Shannon divergence of q(z) and prior.
        kl_q_p: KL(q(z) || prior).
        kl_p_q: KL(prior || q(z)).
        offdiag_cov: norm of the covariances between latent means.
        std_ratio: standard deviation of q(z) in units of the prior's; of several
            dimensions the one farthest from 1.
    """

    judged: str
    num_rows: int
    num_rows_used: int
    latent_dim: int
    level: float
    collapsed: bool
    mi_x_mean: float
    mi_x_sample: float
    mi_reference: float
    mi_p_value: float
    pc_x: float
    pc_x_reference: float
    pc_y: float
    pc_y_reference: float
    hz: float
    hz_p_value: float
    hz_expected: float
    hz_reference: float
    hz_singular: bool
    hz_sample: float
    ks: float
    ks_p_value: float
    ks_sample: float
    ks_sample_p_value: float
    js: float
    kl_q_p: float
    kl_p_q: float
    offdiag_cov: float
    std_ratio: float

    @property
    def mi_judged(self) -> float:
        """Mutual information with x, of the means or of samples."""
        return self.mi_x_sample if self.judged == "samples" else self.mi_x_mean

    @property
    def hz_judged(self) -> float:
        """Distance from a Gaussian, of the means or of samples."""
        return self.hz_sample if self.judged == "samples" else self.hz

    @property
    def shape_is_gaussian(self) -> bool:
        """Whether what is judged is as Gaussian as noise, whatever its width."""
        return self.hz_judged <= self.hz_reference

    @property
    def depends_on_inputs(self) -> bool:
        """Whether z shares more information with x than noise would."""
        return not self.collapsed and self.mi_p_value <= 1 - self.level + _ROUNDING

    @property
    def hints_at_dependence(self) -> bool:
        """Whether means follow x in a line, where mutual information shows nothing."""
        return not self.depends_on_inputs and self.pc_x > self.pc_x_reference

    @property
    def means_are_gaussian(self) -> bool:
        """Whether the latent means are as Gaussian as noise, whatever their width.

        On the means, as in the paper, so that means that are all equal fail, however
        wide their posteriors. A strict reading: under exact inference q(z) equals the
        prior but its means need not be Gaussian; see `samples_match_prior`.
        """
        return self.hz <= self.hz_reference

    @property
    def std_ratio_limits(self) -> tuple[float, float]:
        """What `std_ratio` stays between: the level of noise, and a tolerance of 20 %.

        The standard deviation of N Gaussian values varies by 1 / sqrt(2 N).
        """
        deviations = stats.norm.ppf(1 - (1 - self.level) / (2 * self.latent_dim))
        chance = float(deviations / np.sqrt(2 * self.num_rows))
        return (
            1 / (1 + _WIDTH_TOLERANCE + chance),
            1 + _WIDTH_TOLERANCE + chance,
        )

    @property
    def width_matches_prior(self) -> bool:
        """Whether q(z) is about as wide as the prior."""
        lowest, highest = self.std_ratio_limits
        return lowest <= self.std_ratio <= highest

    @property
    def ks_limit(self) -> float:
        """What `ks_sample` stays below: the level of noise, and the same tolerance."""
        level = 1 - (1 - self.level) / self.latent_dim
        return float(stats.kstwo.ppf(level, self.num_rows)) + _KS_TOLERANCE

    @property
    def differs_from_prior(self) -> bool:
        """Whether z has another shape, width or place than its prior."""
        return not (
            self.shape_is_gaussian
            and self.width_matches_prior
            and self.ks_sample <= self.ks_limit
        )

    @property
    def samples_match_prior(self) -> bool:
        """Whether a sample of q(z) passes for one of the prior, in shape and scale."""
        return (
            self.hz_sample <= self.hz_reference
            and self.ks_sample_p_value > 1 - self.level
            and self.width_matches_prior
        )

    @property
    def independence_verdict(self) -> str:
        """One sentence on the first assumption: z is independent of x."""
        if self.collapsed:
            return f"{_NO_INFORMATION}."
        found = "depends on x" if self.depends_on_inputs else "looks independent of x"
        value, reference = _apart(self.mi_judged, self.mi_reference)
        verdict = (
            f"z {found}: MI {value}, expected below {reference} for white noise of "
            "this size"
        )
        if self.hints_at_dependence:
            verdict += (
                f"; but PC(x) {self.pc_x:.3f} above {self.pc_x_reference:.3f} "
                "hints at a linear dependence"
            )
        return verdict + "."

    @property
    def prior_verdict(self) -> str:
        """One sentence on the second assumption: q(z) is the prior."""
        width = f"q(z) is {self.std_ratio:.2f} times as wide as the prior"
        value, reference = _apart(self.hz_judged, self.hz_reference)
        shape = f"HZ {value}, expected below {reference} for white noise of this size"
        if self.collapsed:
            verdict = f"{_NO_INFORMATION}; {width}"
        elif self.hz_singular and self.judged == "means":
            verdict = (
                f"z differs from its prior: its means do not span all "
                f"{self.latent_dim} dimensions; {width}"
            )
        elif not self.shape_is_gaussian:
            verdict = f"z differs from its prior: {shape}; {width}"
        elif not self.width_matches_prior:
            lowest, highest = self.std_ratio_limits
            wrong = "narrow" if self.std_ratio < 1 else "wide"
            verdict = (
                f"z differs from its prior: Gaussian in shape ({shape}) but too "
                f"{wrong}; {width}, expected {lowest:.2f} to {highest:.2f}"
            )
        elif self.differs_from_prior:
            verdict = (
                f"z differs from its prior: Gaussian in shape ({shape}), but samples "
                f"of q(z) lie elsewhere; KS {self.ks_sample:.2f}, expected below "
                f"{self.ks_limit:.2f}"
            )
        else:
            verdict = f"z looks Gaussian like its prior: {shape}; {width}"
        if (
            self.judged == "means"
            and not self.means_are_gaussian
            and self.samples_match_prior
        ):
            verdict += "; samples of q(z) do match the prior"
            if not self.hz_singular:
                verdict += ", and the means of an exact posterior need not be Gaussian"
        return f"{verdict}."

    def to_dict(self) -> dict:
        """All fields, booleans and verdicts, flat."""
        derived = (
            "depends_on_inputs",
            "hints_at_dependence",
            "means_are_gaussian",
            "width_matches_prior",
            "differs_from_prior",
            "samples_match_prior",
            "independence_verdict",
            "prior_verdict",
        )
        return asdict(self) | {name: getattr(self, name) for name in derived}

    def __str__(self) -> str:
        draws, noise = self.judged == "samples", self.mi_reference  # of what is judged
        rows = [
            ("MI(x; mean z)", self.mi_x_mean, None if draws else noise),
            ("MI(x; sampled z)", self.mi_x_sample, noise if draws else None),
            ("PC(x)", self.pc_x, self.pc_x_reference),
            ("PC(y)", self.pc_y, self.pc_y_reference),
            ("HZ(mean z)", self.hz, None if draws else self.hz_reference),
            ("HZ(sampled z)", self.hz_sample, self.hz_reference),
            ("KS(mean z, prior)", self.ks, None),
            ("KS(sampled z, prior)", self.ks_sample, None),
            ("JS(q(z), prior)", self.js, None),
            ("KL(q(z), prior)", self.kl_q_p, None),
            ("KL(prior, q(z))", self.kl_p_q, None),
            ("off-diagonal covariance", self.offdiag_cov, None),
            ("std of q(z) / prior's", self.std_ratio, None),
        ]
        size = f"{self.num_rows} rows"
        if self.num_rows_used < self.num_rows:
            size += f", {self.num_rows_used} of them for MI, PC, JS and KL"
        lines = [
            f"Latents of {size}",
            f"{'':<24}{'value':>10}  {f'noise, {self.level:.0%}':>11}",
        ]
        for name, value, reference in rows:
            shown = "" if reference is None else f"{reference:.4g}"
            lines.append(f"{name:<24}{value:>10.4g}  {shown:>11}".rstrip())
        if self.pc_y > self.pc_y_reference:
            lines.append("PC(y) may be high: a z that makes the noise of y follows it.")
        what = "draws of z, whose means need not be Gaussian" if draws else "means of z"
        verdicts = self.independence_verdict, self.prior_verdict
        return "\n".join([*lines, f"Judged by {what}:", *verdicts])


def diagnose_latents(
    inputs: ArrayLike,
    targets: ArrayLike,
    latent_means: ArrayLike,
    latent_stds: ArrayLike,
    prior_std: ArrayLike,
    *,
    judged: str = "means",
    latent_samples: ArrayLike | None = None,
    num_permutations: int = 200,
    seed: int = 0,
    level: float = 0.95,
    max_rows: int = 2000,
) -> LatentDiagnosis:
    """Check both assumptions on z, each against white noise of the same size.

    Args:
        inputs: `[N, D]` training inputs.
        targets: `[N, L]` training targets.
        latent_means: `[N, K]` means of q(z_n).
        latent_stds: `[N, K]` standard deviations of q(z_n).
        prior_std: standard deviation of the prior of z, a number or `[K]`.
        judged: what verdicts are on. The "means", as in the paper, show a z that
            memorises; but under exact inference it is "samples" of z, one a row, that
            are independent of x and distributed like the prior.
        latent_samples: `[N, K]` draws of z, one a row; if not given they are Gaussian,
            of the means and standard deviations.
        num_permutations: random pairings of x and z that show what noise gives.
        seed: of permutations, of samples of z and of the choice of rows.
        level: probability that noise is taken for noise.
        max_rows: MI, PC and the divergences use a random choice of at most this many
            rows; their references belong to that number.
    """
    x, y, means, stds = (
        _rows(values, name)
        for values, name in [
            (inputs, "inputs"),
            (targets, "targets"),
            (latent_means, "latent_means"),
            (latent_stds, "latent_stds"),
        ]
    )
    if not len(x) == len(y) == len(means) or means.shape != stds.shape:
        raise ValueError(
            "inputs, targets, latent_means and latent_stds must have the same rows, "
            f"got shapes {x.shape}, {y.shape}, {means.shape} and {stds.shape}."
        )
    if not 0 < level < 1 or (num_permutations + 1) * (1 - level) < 1 - _ROUNDING:
        raise ValueError(
            f"num_permutations={num_permutations} cannot reach level={level}: "
            "(num_permutations + 1) * (1 - level) must be at least 1, and level lie "
            "between 0 and 1."
        )
    if judged not in ("means", "samples"):
        raise ValueError(f"judged={judged!r} must be one of ['means', 'samples'].")
    num_rows, latent_dim = means.shape
    if min(num_rows, max_rows) < 3:
        raise ValueError(
            f"{num_rows} rows and max_rows={max_rows}: at least 3 rows are needed."
        )
    prior_std = np.broadcast_to(np.asarray(prior_std, float), latent_dim)

    sample_seed, choice_seed, permutation_seed = np.random.SeedSequence(seed).spawn(3)
    noise = np.random.default_rng(sample_seed).standard_normal(means.shape)
    samples = means + stds * noise
    if latent_samples is not None:
        samples = _rows(latent_samples, "latent_samples")
        if samples.shape != means.shape:
            raise ValueError(
                f"latent_samples has shape {samples.shape}; it must be {means.shape}, "
                "that of latent_means."
            )
    chosen = np.arange(num_rows)
    if num_rows > max_rows:
        rng = np.random.default_rng(choice_seed)
        chosen = np.sort(rng.choice(num_rows, max_rows, replace=False))
    permutation_rng = np.random.default_rng(permutation_seed)

    neighbours = min(5, len(chosen) - 1)
    mi = mutual_information(x[chosen], means[chosen], neighbours)
    mi_sample = mutual_information(x[chosen], samples[chosen], neighbours)
    on_means = judged == "means"
    mi_noise = permuted_mutual_information(
        x[chosen],
        (means if on_means else samples)[chosen],
        num_permutations,
        neighbours,
        seed,
    )
    as_large = np.sum(mi_noise >= (mi if on_means else mi_sample))
    orders = [permutation_rng.permutation(chosen) for _ in range(num_permutations)]
    pc_x_noise, pc_y_noise = (
        [
            reference_squared_correlation(values[chosen], means[order])
            for order in orders
        ]
        for values in (x, y)
    )
    hz, hz_sample = henze_zirkler_test(means), henze_zirkler_test(samples)
    ks, ks_sample = ks_statistic(means, prior_std), ks_statistic(samples, prior_std)
    divergences = aggregated_posterior_divergences(
        means[chosen], stds[chosen], prior_std, seed=seed
    )
    spread = np.var(means, axis=0) + np.mean(stds**2, axis=0)
    ratios = np.sqrt(spread) / prior_std
    # Of several the farthest from 1, in factors; 0 is farther than any.
    with np.errstate(divide="ignore"):
        farthest = np.argmax(np.abs(np.log(ratios)))
    return LatentDiagnosis(
        judged=judged,
        num_rows=num_rows,
        num_rows_used=len(chosen),
        latent_dim=latent_dim,
        level=level,
        collapsed=bool(np.all(np.ptp(means, axis=0) <= 1e-9 * prior_std)),
        mi_x_mean=max(0.0, mi),
        mi_x_sample=max(0.0, mi_sample),
        mi_reference=max(0.0, _critical_value(mi_noise, level)),
        mi_p_value=float((1 + as_large) / (1 + num_permutations)),
        pc_x=reference_squared_correlation(x[chosen], means[chosen]),
        pc_x_reference=_critical_value(pc_x_noise, level),
        pc_y=reference_squared_correlation(y[chosen], means[chosen]),
        pc_y_reference=_critical_value(pc_y_noise, level),
        hz=hz.statistic,
        hz_p_value=hz.p_value,
        hz_expected=hz.expected,
        hz_reference=hz_quantile(level, num_rows, latent_dim),
        hz_singular=hz.singular,
        hz_sample=hz_sample.statistic,
        ks=ks.statistic,
        ks_p_value=ks.p_value,
        ks_sample=ks_sample.statistic,
        ks_sample_p_value=ks_sample.p_value,
        js=divergences.js,
        kl_q_p=divergences.kl_q_p,
        kl_p_q=divergences.kl_p_q,
        offdiag_cov=reference_offdiagonal_norm(means),
        std_ratio=float(ratios[farthest]),
    )


def _apart(value: float, reference: float) -> tuple[str, str]:
    """Both numbers with as many digits as tell them apart, two at least."""
    for digits in range(2, 6):
        shown = f"{value:.{digits}f}", f"{reference:.{digits}f}"
        if shown[0] != shown[1]:
            break
    return shown


def _critical_value(noise, level: float) -> float:
    """The order statistic that exactly those values exceed whose p-value is small."""
    position = int(np.ceil(level * (len(noise) + 1) - _ROUNDING))
    return float(np.sort(noise)[position - 1])


def _rows(values: ArrayLike, name: str) -> np.ndarray:
    array = np.asarray(values, float)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not np.isfinite(array).all():
        raise ValueError(
            f"{name} of shape {array.shape} must be [N] or [N, columns] of finite "
            "numbers."
        )
    return array
