"""The posterior predictive p(y|x, D): one object for everything one asks of it."""

import copy
import functools
import reprlib
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from ncai.model.latent_nodes import latent_nodes, tail_nodes
from ncai.model.networks import FlatNetwork
from ncai.predictive import decomposition, mixture, row_statistics
from ncai.predictive import samples as predictive_samples
from ncai.predictive.decomposition import Decomposition
from ncai.predictive.row_map import map_mixtures
from ncai.types import WeightDraws

SMALLEST_TAIL = 1e-30  # probabilities are 32-bit numbers
# A density that is made by fewer components than this (or than this share of all, where
# there are few) is computed anew by TAIL_NODES values of z for each W.
FEWEST_COMPONENTS, LEAST_SHARE = 30, 0.01
TAIL_NODES = 64
TAIL_PARTS = 8  # of the draws of W, one after another, to save memory


class PredictiveDistribution:
    """The predictive distributions of N rows, in the units of y.

    Each row's density is an equally weighted mixture of Gaussians, one for each weight
    draw and each of `num_latent_draws` values of z from its prior: the posterior
    predictive (Eq. `posterior-predictive`) with both integrals made sums. Work is done
    when a method is called, in pieces of bounded memory, and the result for a row does
    not depend on the other rows.

    With `single_output` arrays are [N]; otherwise they are [N, L].

    Args:
        network: f(x, z; W).
        inputs: N rows of D inputs, on the scale that the network was trained on.
        draws: weight draws, with noise on the scale that the network was trained on.
        num_latent_draws: values of z for each weight draw.
        target_shift: y = shift + scale * network output, one number for each output.
        target_scale: as above; positive.
        single_output: drop the axis of outputs; needs L = 1.
    """

    def __init__(
        self,
        *,
        network: FlatNetwork,
        inputs: ArrayLike,
        draws: WeightDraws,
        num_latent_draws: int = 32,
        target_shift: ArrayLike,
        target_scale: ArrayLike,
        single_output: bool,
    ):
        self.network = network
        with np.errstate(over="ignore"):  # refused below
            self.inputs = np.asarray(inputs, np.float32)
        self.draws = draws
        self.num_latent_draws = int(num_latent_draws)
        self.target_shift = np.asarray(target_shift, np.float64).reshape(-1)
        self.target_scale = np.asarray(target_scale, np.float64).reshape(-1)
        self.single_output = single_output
        self._row_ids = np.arange(len(self.inputs), dtype=np.uint32)
        if self.inputs.ndim != 2 or self.inputs.shape[1] != network.input_dim:
            raise ValueError(
                f"inputs has shape {self.inputs.shape}; it must be "
                f"[rows, {network.input_dim}]."
            )
        if not np.isfinite(self.inputs).all():
            row = int(np.argmin(np.isfinite(self.inputs).all(axis=1)))
            raise ValueError(
                f"row {row} of the inputs (the first is 0) holds NaN, or a value too "
                "far from the training rows for 32-bit numbers (3e38 of their standard "
                "deviations)."
            )
        if single_output and network.output_dim != 1:
            raise ValueError(
                f"single_output=True needs a network with 1 output; this one has "
                f"{network.output_dim}."
            )
        for name, values in (
            ("target_shift", self.target_shift),
            ("target_scale", self.target_scale),
        ):
            if values.shape != (network.output_dim,):
                raise ValueError(
                    f"{name} holds {values.size} numbers; it must hold one for each of "
                    f"the {network.output_dim} outputs."
                )
        if not (self.target_scale > 0).all():
            raise ValueError(
                f"target_scale={self.target_scale.tolist()} must be positive."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return (
            f"PredictiveDistribution(rows={len(self)}, "
            f"outputs={self.network.output_dim}, "
            f"weight_draws={len(self.draws.weights)}, "
            f"latent_draws={self._nodes().shape[1]})"
        )

    def __getitem__(self, index) -> Self:
        """The rows that `index` (number, slice, mask or list of numbers) picks."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        part = copy.copy(self)
        part.__dict__.pop("_moments", None)  # those of all rows
        part.inputs = self.inputs[rows]
        part._row_ids = self._row_ids[rows]
        return part

    def starting_at(self, row: int) -> Self:
        """The same rows, counted from `row` on: a piece of a longer table.

        Samples then are what they would be had the whole table been predicted at once.
        """
        part = self[:]
        part._row_ids = part._row_ids + np.uint32(row)
        return part

    # ----- Moments --------------------------------------------------------------------

    @functools.cached_property
    def _moments(self):
        # Both come from one pass over the mixtures.
        return self._map(row_statistics.moments)

    def mean(self) -> np.ndarray:
        """E[y|x]."""
        return self._in_units(self._moments[0])

    def variance(self) -> np.ndarray:
        """Var[y|x], noise included."""
        return self._drop(self._moments[1] * self.target_scale**2)

    def std(self) -> np.ndarray:
        """Standard deviation of y given x, noise included."""
        return np.sqrt(self.variance())

    # ----- Densities ------------------------------------------------------------------

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log p(y|x), [N]: the joint density of all outputs. Finite in far tails.

        Where few of the values of z come near y it is computed by others, which reach
        further out (K = 1).
        """
        targets = self._standardise(self._targets(y, "y"))
        statistics = row_statistics.log_prob, row_statistics.weighted_log_prob
        found = self._map_with_tails(*statistics, targets)
        return found - np.log(self.target_scale).sum()

    def _map_with_tails(self, plain, weighted, arguments, shared=()) -> np.ndarray:
        """A logarithm for each row; by values of z that reach further where few count.

        `plain` is its statistic, with the number of components that make it; `weighted`
        that of components with weights, which come after `shared`.
        """
        found, count = self._map(plain, arguments, shared)
        size = self.draws.weights.shape[0] * self._nodes().shape[1]
        lonely = count < min(FEWEST_COMPONENTS, LEAST_SHARE * size)
        if self.network.latent_dim != 1 or not lonely.any():
            return found
        num_draws = len(self.draws.weights)
        nodes, log_weights = tail_nodes(num_draws, TAIL_NODES)
        arguments = jax.tree.map(lambda a: a[lonely], arguments)
        # In parts: hidden nodes of all at once would fill the memory.
        parts = [
            map_mixtures(
                weighted,
                self.network,
                jax.tree.map(lambda a, i=i: a[i::TAIL_PARTS], self.draws),
                nodes[i::TAIL_PARTS],
                self.inputs[lonely],
                arguments,
                (shared, log_weights[i::TAIL_PARTS]),
            )
            for i in range(min(TAIL_PARTS, num_draws))
        ]
        found[lonely] = logsumexp(parts, axis=0)
        return found

    def pdf(self, y: ArrayLike) -> np.ndarray:
        """p(y|x), [N]: the joint density of all outputs."""
        return np.exp(self.log_prob(y))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y) for each output."""
        targets = self._standardise(self._targets(y, "y"))
        return self._drop(self._map(row_statistics.cdf, targets))

    def pit(self, y: ArrayLike, seed: int = 0) -> np.ndarray:
        """The cdf at y for each output: uniform on [0, 1] if predictions are right.

        `seed` is for predictions of rounded values alone.
        """
        del seed
        return self.cdf(y)

    def prob_above(self, threshold: ArrayLike) -> np.ndarray:
        """P(y' > threshold) for each output; `threshold` is one number or an array."""
        targets = self._standardise(self._targets(threshold, "threshold"))
        return self._drop(self._map(row_statistics.prob_above, targets))

    def log_prob_grid(self, values: ArrayLike, output: int = 0) -> np.ndarray:
        """Log density of one output at the same G values for every row, [N, G].

        For pictures: far out, where few values of z reach, `log_prob` is more exact.
        """
        values = _numbers("values", values)
        if values.ndim != 1 or np.isnan(values).any():
            raise ValueError(
                f"values has shape {values.shape}; it must be a list of numbers "
                "without NaN."
            )
        output = self._output(output)
        scale = self.target_scale[output]
        points = (values - self.target_shift[output]) / scale
        shared = (points.astype(np.float32), np.int32(output))
        return self._map(
            row_statistics.grid, shared=shared, values_per_row=len(values)
        ) - np.log(scale)

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Continuous ranked probability score of each output; smaller is better."""
        targets = self._standardise(self._targets(y, "y"))
        return self._drop(self._map(row_statistics.crps, targets) * self.target_scale)

    # ----- Quantiles and intervals ----------------------------------------------------

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Values with probability `q` below them.

        Args:
            q: one number in (0, 1), or a list of Q of them, which adds a last axis Q.
        """
        levels = _numbers("q", q)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(
                f"q={q!r} must be a number, or a list of numbers, strictly between 0 "
                "and 1."
            )
        if (levels < SMALLEST_TAIL).any():
            raise ValueError(f"q={q!r} must be at least {SMALLEST_TAIL:g}.")
        flat = levels.reshape(-1)
        side = np.where(flat <= 0.5, 1.0, -1.0)
        tails = np.stack([np.minimum(flat, 1 - flat), side], -1).astype(np.float32)
        found = self._map(
            row_statistics.quantiles, shared=tails, values_per_row=len(flat)
        )
        found = self.target_shift[:, None] + self.target_scale[:, None] * found
        found = found[:, 0] if self.single_output else found
        return found if levels.ndim else found[..., 0]

    def median(self) -> np.ndarray:
        """The value with as much probability below it as above."""
        return self.quantile(0.5)

    def interval(
        self, level: float = 0.95, kind: str = "central", output: int | None = None
    ):
        """Where y lies with probability `level`.

        Args:
            level: a number in (0, 1).
            kind: "central" leaves out equal probability on both sides;
                "highest_density" is the smallest set, which may be several intervals.
            output: which output; "highest_density" needs it if there are several.

        Returns:
            For "central" two arrays, lower and upper ends. For "highest_density" a list
            with one array of rows [lower, upper] for each row.
        """
        if np.ndim(level) or not 0 < _numbers("level", level) < 1:
            raise ValueError(
                f"level={level!r} must be a number strictly between 0 and 1."
            )
        if kind not in ("central", "highest_density"):
            raise ValueError(f"kind={kind!r} must be 'central' or 'highest_density'.")
        if kind == "highest_density":
            return self._highest_density(level, output)
        ends = self.quantile([(1 - level) / 2, (1 + level) / 2])
        if output is not None and not self.single_output:
            ends = ends[:, self._output(output)]
        return ends[..., 0], ends[..., 1]

    def _highest_density(self, level: float, output: int | None) -> list[np.ndarray]:
        if output is None and self.network.output_dim > 1:
            raise ValueError(
                f"output=None: give output=0 to {self.network.output_dim - 1}, since "
                "a set of highest density is found for one output at a time."
            )
        output = self._output(0 if output is None else output)
        points, density, threshold = self._map(
            row_statistics.highest_density,
            shared=(np.float32(level), np.int32(output)),
            values_per_row=2 * mixture.FINE_GRID_SIZES[-1],
        )
        points = self.target_shift[output] + self.target_scale[output] * points
        return [
            row_statistics.highest_density_set(*row, level)
            for row in zip(points, density, threshold, strict=True)
        ]

    # ----- Samples --------------------------------------------------------------------

    def sample(self, n: int, seed: int | None = None) -> np.ndarray:
        """Random draws of y, [n, N] or [n, N, L], independent between rows.

        Each draw takes a new W, a new z from its prior and new noise. A row's draws
        depend on `seed` and on its place among the rows first predicted (which
        `predictive[...]` keeps), so that equal inputs still have independent draws.
        Without a seed it is 0: the same call gives the same draws.
        """
        n, seed = _count("n", n), _seed(seed)
        samples = predictive_samples.sample_rows(
            self.network, self.draws, self.inputs, self._row_ids, n, seed
        )
        return self._samples_first(samples)

    def sample_functions(
        self,
        n: int,
        seed: int | None = None,
        latent: str = "mean",
        include_noise: bool = False,
    ) -> np.ndarray:
        """Random functions at the rows, [n, N] or [n, N, L]: each uses one W for all.

        The weight draws are used in random order, each once before any comes again.

        Args:
            n: number of functions.
            seed: of their choice and of what else is random; 0 if not given.
            latent: "mean" averages f over z, which gives the mean of y given x and W
                (as Thompson sampling wants); "prior" draws z for each row; "shared"
                draws one z for each function and uses it for all rows.
            include_noise: add output noise, drawn for each row.
        """
        n, seed = _count("n", n), _seed(seed)
        _one_of("latent", latent, predictive_samples.LATENT_CHOICES)
        samples = predictive_samples.sample_functions(
            self.network,
            self.draws,
            self.inputs,
            self._row_ids,
            n,
            seed,
            latent,
            include_noise,
            max(64, self.num_latent_draws),
        )
        return self._samples_first(samples)

    # ----- Decomposition --------------------------------------------------------------

    def decompose(
        self,
        measure: str = "variance",
        method: str = "monte_carlo",
        num_weight_draws: int | None = None,
        num_latent_draws: int | None = None,
        k: int = 5,
        seed: int = 0,
    ) -> Decomposition:
        """Split each row's uncertainty into aleatoric and epistemic parts.

        The parts add up to the total. They are variances, not standard deviations: take
        their root for the units of y, as `ncai predict --decompose` does.

        Args:
            measure: "variance", for each output in squared units of y; or "entropy", of
                all outputs together in nats (Eqs. `aleatoric` and `epistemic`).
            method: for the entropy: "monte_carlo" averages exact log densities (with
                one output an integral takes the place of the average);
                "nearest_neighbour" is the paper's estimate from samples.
            num_weight_draws: use so many of the weight draws, evenly spaced; if not
                given, all as far as the work stays bounded (256 with one z).
            num_latent_draws: values of z for each weight draw; if not given, as many as
                make the density given W smooth (at least 256 where there is a z).
                If neither is given the total variance is `variance()`, by all draws.
            k: neighbours for "nearest_neighbour".
            seed: for what is random.
        """
        _one_of("measure", measure, decomposition.MEASURES)
        _one_of("method", method, decomposition.METHODS)
        seed = _seed(seed)
        draws, num_latent = self._split_draws(num_weight_draws, num_latent_draws)
        problem = (self.network, draws, self.inputs, num_latent)
        if measure == "variance":
            aleatoric, epistemic = self._variance_parts(draws, num_latent)
            if num_weight_draws is None and num_latent_draws is None:
                return Decomposition.of_variances(self.variance(), epistemic)
            return Decomposition(aleatoric + epistemic, aleatoric, epistemic)
        if method == "nearest_neighbour":
            num_latent = 256 if num_latent_draws is None else num_latent
            k = _count("k", k)
            if not 0 < k < num_latent:
                raise ValueError(
                    f"k={k!r} must be at least 1 and less than the {num_latent} "
                    "samples of each weight draw."
                )
            total, aleatoric = decomposition.neighbour_decomposition(
                *problem[:3], num_latent, k, seed
            )
        else:
            total, aleatoric = decomposition.entropy_decomposition(*problem, seed)
        shift = np.log(self.target_scale).sum()
        return Decomposition(total + shift, aleatoric + shift, total - aleatoric)

    # ----- Inside ---------------------------------------------------------------------

    def _variance_parts(self, draws: WeightDraws, num_latent: int):
        """Aleatoric and epistemic variance by these draws."""
        parts = decomposition.variance_decomposition(
            self.network, draws, self.inputs, num_latent
        )
        return tuple(self._drop(part * self.target_scale**2) for part in parts)

    def _split_draws(
        self, num_weight_draws: int | None, num_latent_draws: int | None
    ) -> tuple[WeightDraws, int]:
        """Draws of W, and the number of z for each, that a decomposition uses."""
        if num_latent_draws is None:
            num_latent = decomposition.default_latent_draws(
                self.network.latent_dim, self.num_latent_draws
            )
        else:
            num_latent = _count("num_latent_draws", num_latent_draws)
        if num_weight_draws is None:
            most = decomposition.default_weight_draws(num_latent)
        else:
            most = _count("num_weight_draws", num_weight_draws)
        # The draws of a restart lie together, so the first few would be of one restart.
        total = len(self.draws.weights)
        chosen = np.linspace(0, total - 1, min(most, total)).round().astype(int)
        return WeightDraws(*(leaf[chosen] for leaf in self.draws)), num_latent

    def _nodes(self) -> np.ndarray:
        return latent_nodes(
            len(self.draws.weights), self.num_latent_draws, self.network.latent_dim
        )

    def _map(self, statistic, arguments=(), shared=(), values_per_row: int = 1):
        return map_mixtures(
            statistic,
            self.network,
            self.draws,
            self._nodes(),
            self.inputs,
            arguments,
            shared,
            values_per_row,
        )

    def _drop(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self.single_output else values

    def _in_units(self, values: np.ndarray) -> np.ndarray:
        return self._drop(self.target_shift + self.target_scale * values)

    def _standardise(self, targets: np.ndarray) -> np.ndarray:
        return ((targets - self.target_shift) / self.target_scale).astype(np.float32)

    def _samples_first(self, samples: np.ndarray) -> np.ndarray:
        samples *= self.target_scale  # in place: samples may fill the memory
        samples += self.target_shift
        samples = np.moveaxis(samples, 1, 0)
        return samples[..., 0] if self.single_output else samples

    def _targets(self, values: ArrayLike, name: str) -> np.ndarray:
        """`values` as [N, L]; one number stands for all."""
        given = _numbers(name, values)
        shape = (len(self), self.network.output_dim)
        single = shape[1] == 1 and given.shape == shape[:1]
        if given.ndim == 0 or given.shape == shape or single:
            if np.isnan(given).any():
                raise ValueError(f"{name} holds NaN; every value must be a number.")
            given = given[:, None] if single else given
            return np.broadcast_to(given, shape)
        right = f"[{shape[0]}]" if self.single_output else f"[{shape[0]}, {shape[1]}]"
        raise ValueError(
            f"{name} has shape {list(given.shape)}; it must be {right}, one value for "
            "each row and output."
        )

    def _output(self, output: int) -> int:
        if output not in range(self.network.output_dim):
            raise ValueError(
                f"output={output!r} must be a whole number from 0 to "
                f"{self.network.output_dim - 1}."
            )
        return int(output)


def _count(name: str, value: int) -> int:
    if not _is_whole(value) or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1.")
    return int(value)


def _seed(value: int | None) -> int:
    if value is None:
        return 0
    if not _is_whole(value) or not 0 <= value < 2**32:  # JAX keeps no more
        raise ValueError(
            f"seed={value!r} must be a whole number from 0 to {2**32 - 1}, or None."
        )
    return int(value)


def _is_whole(value: Any) -> bool:
    numeric = isinstance(value, int | float | np.integer | np.floating)
    return numeric and value % 1 == 0


def _numbers(name: str, values: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        shown = " ".join(reprlib.repr(values).split())
        raise ValueError(
            f"{name}={shown} must be a number or an array of numbers."
        ) from None


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {list(choices)}.")
