"""What a diagnosis of the latents found: the numbers, and verdicts in words.

`ncai.diagnostics.latents` computes the numbers.
"""

from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

# 1 - 0.9 is a little below 0.1, but a p-value of exactly 0.1 must still count.
ROUNDING = 1e-9
_NO_INFORMATION = "z carries no information: all its means are equal"
_NOISE = "for white noise with as many rows"
# q(z) may be this much wider or narrower than its prior, beyond what chance explains.
# The spread that predictions get through z is then off by as much, which is little
# compared with the effect of mean-field inference on the weights. Without a tolerance,
# any fit to many rows would fail.
_WIDTH_TOLERANCE = 0.2
# The KS distance between N(0, 1) and a Gaussian wider by this tolerance: it is largest
# where the two densities cross.
_CROSSING = np.sqrt(
    2 * np.log(1 + _WIDTH_TOLERANCE) / (1 - (1 + _WIDTH_TOLERANCE) ** -2)
)
_KS_TOLERANCE = float(
    stats.norm.cdf(_CROSSING) - stats.norm.cdf(_CROSSING / (1 + _WIDTH_TOLERANCE))
)
# Predictions draw z from its prior, whatever x is. On average, this costs a new row at
# most I(x; z) nats of log-likelihood. Less than this limit hardly changes predictions.
# A correlation of 0.31 has this much information.
SMALLEST_EFFECT = 0.05
_SMALLEST_SQUARED_CORRELATION = 1 - float(np.exp(-2 * SMALLEST_EFFECT))
_ADVICE = {
    "means": "integrate z out (inference='marginal'), or lower NCAI's input_tolerance",
    "samples": "train with more steps or restarts, or with other inputs",
}
_DERIVED = (
    "depends_on_inputs",
    "hints_at_dependence",
    "means_are_gaussian",
    "width_matches_prior",
    "differs_from_prior",
    "samples_match_prior",
    "independence_verdict",
    "prior_verdict",
)


@dataclass(frozen=True)
class LatentDiagnosis:
    """What `diagnose_latents` found about z.

    Information is in nats; estimates below 0 are shown as 0. A `_reference` is the
    value that white noise with as many rows stays below with probability `level`; a
    `_p_value` is the probability that such noise reaches the value found.

    Attributes:
        judged: whether the verdicts are about the "means" of z or "samples" of z.
        num_rows: number of rows given.
        num_rows_used: number of rows that MI, PC and the divergences were computed on.
        num_inputs: number D of inputs.
        latent_dim: number K of latents.
        level: probability level of the references and verdicts.
        collapsed: whether all rows have the same latent means.
        mi_x_mean: mutual information between inputs and latent means.
        mi_x_sample: mutual information between inputs and one sample of z per row.
        mi_reference: reference of the MI that is judged, by permutation of rows.
        mi_p_value: p-value of the MI that is judged, by permutation of rows.
        pc_x: mean squared correlation between inputs and latent means.
        pc_x_reference: its reference, by permutation of rows.
        pc_y: mean squared correlation between targets and latent means.
        pc_y_reference: its reference, by permutation of rows.
        hz: Henze-Zirkler statistic of the latent means; 4 N if they are singular.
        hz_p_value: its p-value, by the log-normal approximation.
        hz_expected: its mean for Gaussian noise.
        hz_reference: its reference, by the log-normal approximation.
        hz_singular: whether the means lie in a subspace of the K dimensions.
        hz_sample: Henze-Zirkler statistic of one sample of z per row, which is a
            sample of the aggregated posterior q(z).
        ks: largest Kolmogorov-Smirnov distance between latent means and prior.
        ks_p_value: its p-value.
        ks_sample: the same distance for the sample of q(z).
        ks_sample_p_value: its p-value.
        js: Jensen-Shannon divergence between q(z) and prior.
        kl_q_p: KL(q(z) || prior).
        kl_p_q: KL(prior || q(z)).
        offdiag_cov: norm of the covariances between latent means.
        std_ratio: standard deviation of q(z) divided by that of the prior; with several
            latents, the ratio furthest from 1.
    """

    judged: str
    num_rows: int
    num_rows_used: int
    num_inputs: int
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
        """Mutual information with x, of the means or samples that are judged."""
        return self.mi_x_sample if self.judged == "samples" else self.mi_x_mean

    @property
    def hz_judged(self) -> float:
        """Henze-Zirkler statistic of the means or samples that are judged."""
        return self.hz_sample if self.judged == "samples" else self.hz

    @property
    def shape_is_gaussian(self) -> bool:
        """Whether what is judged passes as Gaussian, whatever its width."""
        return self.hz_judged <= self.hz_reference

    @property
    def detects_inputs(self) -> bool:
        """Whether z shares more information with x than white noise would."""
        return not self.collapsed and self.mi_p_value <= 1 - self.level + ROUNDING

    @property
    def depends_on_inputs(self) -> bool:
        """Whether z depends on x, and by enough to change predictions."""
        return self.detects_inputs and self.mi_judged >= SMALLEST_EFFECT

    @property
    def mi_limit(self) -> float:
        """The mutual information from which z counts as dependent on x."""
        return max(self.mi_reference, SMALLEST_EFFECT)

    @property
    def hints_at_dependence(self) -> bool:
        """Whether means correlate with x although mutual information shows little."""
        explained = self.pc_x * self.num_inputs * self.latent_dim
        return (
            not self.depends_on_inputs
            and self.pc_x > self.pc_x_reference
            and explained >= _SMALLEST_SQUARED_CORRELATION
        )

    @property
    def means_are_gaussian(self) -> bool:
        """Whether the latent means pass as Gaussian, whatever their width.

        This looks at the means, as the paper does, so that means that are all equal
        fail, however wide their posteriors. It is a strict test: under exact inference
        q(z) equals the prior, but its means need not be Gaussian; see
        `samples_match_prior`.
        """
        return self.hz <= self.hz_reference

    @property
    def std_ratio_limits(self) -> tuple[float, float]:
        """The range that `std_ratio` may lie in: chance, plus a tolerance of 20 %.

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
        """The largest acceptable `ks_sample`: chance, plus the same tolerance."""
        level = 1 - (1 - self.level) / self.latent_dim
        return float(stats.kstwo.ppf(level, self.num_rows)) + _KS_TOLERANCE

    @property
    def differs_from_prior(self) -> bool:
        """Whether z differs from its prior in shape, width or location."""
        return not (
            self.shape_is_gaussian
            and self.width_matches_prior
            and self.ks_sample <= self.ks_limit
        )

    @property
    def samples_match_prior(self) -> bool:
        """Whether samples of q(z) pass for samples of the prior, in shape and scale."""
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
        value, reference = with_enough_digits(self.mi_judged, self.mi_reference)
        compared = f"MI {value}, expected below {reference} {_NOISE}"
        if self.depends_on_inputs:
            return (
                f"z depends on x: {compared}; new rows may lose up to {value} nats of "
                f"log-likelihood each. To avoid this, {_ADVICE[self.judged]}."
            )
        verdict = f"z looks independent of x: {compared}"
        if self.detects_inputs:
            verdict += (
                f"; that is detectable, but less than the {SMALLEST_EFFECT:g} nats "
                "that would change predictions"
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
        verdict = self._prior_finding()
        if (
            self.judged == "means"
            and not self.means_are_gaussian
            and self.samples_match_prior
        ):
            verdict += "; samples of q(z) do match the prior"
            if not self.hz_singular:
                verdict += ", and the means of an exact posterior need not be Gaussian"
        return f"{verdict}."

    def _prior_finding(self) -> str:
        width = f"q(z) is {self.std_ratio:.2f} times as wide as the prior"
        value, reference = with_enough_digits(self.hz_judged, self.hz_reference)
        shape = f"HZ {value}, expected below {reference} {_NOISE}"
        if self.collapsed:
            return f"{_NO_INFORMATION}; {width}"
        if not self.differs_from_prior:
            return f"z looks Gaussian like its prior: {shape}; {width}"
        if self.hz_singular and self.judged == "means":
            found = f"its means do not span all {self.latent_dim} dimensions; {width}"
        elif not self.shape_is_gaussian:
            found = f"{shape}; {width}"
        elif not self.width_matches_prior:
            lowest, highest = self.std_ratio_limits
            wrong = "narrow" if self.std_ratio < 1 else "wide"
            found = (
                f"Gaussian in shape ({shape}) but too {wrong}; {width}, expected "
                f"{lowest:.2f} to {highest:.2f}"
            )
        else:
            found = (
                f"Gaussian in shape ({shape}), but samples of q(z) lie elsewhere; "
                f"KS {self.ks_sample:.2f}, expected below {self.ks_limit:.2f}"
            )
        return f"z differs from its prior: {found}"

    def to_dict(self) -> dict:
        """All fields and verdicts, as a flat dict."""
        return asdict(self) | {name: getattr(self, name) for name in _DERIVED}

    def __str__(self) -> str:
        size = f"{self.num_rows} rows"
        if self.num_rows_used < self.num_rows:
            size += f", {self.num_rows_used} of them for MI, PC, JS and KL"
        lines = [
            f"Latents of {size}",
            f"{'':<24}{'value':>10}  {f'noise, {self.level:.0%}':>11}",
        ]
        for name, value, reference in self._table():
            shown = "" if reference is None else f"{reference:.4g}"
            lines.append(f"{name:<24}{value:>10.4g}  {shown:>11}".rstrip())
        if self.pc_y > self.pc_y_reference:
            lines.append(
                "PC(y) may be high: a z that explains the noise of y correlates with y."
            )
        what = "means of z"
        if self.judged == "samples":
            what = "draws of z, whose means need not be Gaussian"
        verdicts = self.independence_verdict, self.prior_verdict
        return "\n".join([*lines, f"Judged by {what}:", *verdicts])

    def _table(self) -> list[tuple[str, float, float | None]]:
        """Name, value and reference; only what is judged has a reference."""
        on_samples, mi_noise = self.judged == "samples", self.mi_reference
        return [
            ("MI(x; mean z)", self.mi_x_mean, None if on_samples else mi_noise),
            ("MI(x; sampled z)", self.mi_x_sample, mi_noise if on_samples else None),
            ("PC(x)", self.pc_x, self.pc_x_reference),
            ("PC(y)", self.pc_y, self.pc_y_reference),
            ("HZ(mean z)", self.hz, None if on_samples else self.hz_reference),
            ("HZ(sampled z)", self.hz_sample, self.hz_reference),
            ("KS(mean z, prior)", self.ks, None),
            ("KS(sampled z, prior)", self.ks_sample, None),
            ("JS(q(z), prior)", self.js, None),
            ("KL(q(z), prior)", self.kl_q_p, None),
            ("KL(prior, q(z))", self.kl_p_q, None),
            ("off-diagonal covariance", self.offdiag_cov, None),
            ("std of q(z) / prior's", self.std_ratio, None),
        ]


def with_enough_digits(value: float, reference: float) -> tuple[str, str]:
    """Both numbers with two to five decimals, as many as it takes to differ."""
    for digits in range(2, 6):
        shown = f"{value:.{digits}f}", f"{reference:.{digits}f}"
        if shown[0] != shown[1]:
            break
    return shown
