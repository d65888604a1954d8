"""The posterior predictive p(y|x, D): one object for everything one asks of it."""

import copy
import functools

import numpy as np
from numpy.typing import ArrayLike

from ncai.model.networks import FlatNetwork
from ncai.predictive import decomposition, intervals, row_statistics, samples
from ncai.predictive.decomposition import Decomposition
from ncai.predictive.row_map import Mixtures, map_log_probabilities, map_mixtures
from ncai.predictive.samples import checked_seed
from ncai.predictive.target_map import TargetMap, grid_of_numbers, rows_of_numbers
from ncai.runtime.arguments import one_of, whole_number
from ncai.types import WeightDraws


class PredictiveDistribution:
    """The predictive distributions of N rows, in the units of y.

    On the scale of training each row's density is an equally weighted mixture of
    Gaussians, one for each weight draw and each of `num_latent_draws` values of z from
    its prior: the posterior predictive (Eq. `posterior-predictive`) with both integrals
    made sums. `target_map` takes it to y. Work is done when a method is called, in
    pieces of bounded memory, and the result for a row does not depend on the other
    rows.

    If y is rounded, moments, probabilities, quantiles, intervals, scores and samples
    are all those of the rounded y. Only `log_prob_grid`, `sample_functions` without
    noise and the entropies of `decompose` are about y before rounding.

    Given the draws, probabilities, densities and quantiles are exact. So are moments
    if y is neither transformed nor rounded; otherwise they are deterministic
    approximations, as the CRPS always is: see `row_statistics.statistics_of`.

    With `single_output` arrays are [N]; otherwise they are [N, L].

    Args:
        network: f(x, z; W).
        inputs: N rows of D inputs, on the scale that the network was trained on.
        draws: weight draws, with noise on the scale that the network was trained on.
        target_map: from the scale of training to y.
        num_latent_draws: values of z for each weight draw.
        single_output: drop the axis of outputs; needs L = 1.
    """

    def __init__(
        self,
        *,
        network: FlatNetwork,
        inputs: ArrayLike,
        draws: WeightDraws,
        target_map: TargetMap,
        num_latent_draws: int = 32,
        single_output: bool,
    ):
        self.num_latent_draws = int(num_latent_draws)
        self.mixtures = Mixtures.of(network, draws, self.num_latent_draws, inputs)
        self.target_map = target_map
        self.single_output = single_output
        self._statistics = row_statistics.statistics_of(target_map)
        self._row_ids = np.arange(len(self.mixtures), dtype=np.uint32)
        if single_output and network.output_dim != 1:
            raise ValueError(
                f"single_output=True needs a network with 1 output; this one has "
                f"{network.output_dim}."
            )
        if target_map.num_outputs != network.output_dim:
            raise ValueError(
                f"target_map has {target_map.num_outputs} outputs; it must have the "
                f"{network.output_dim} of the network."
            )

    @property
    def network(self) -> FlatNetwork:
        """f(x, z; W)."""
        return self.mixtures.network

    @property
    def rounding_step(self) -> np.ndarray:
        """Distance between the values that y can have, [L]; 0 if it is not rounded."""
        return self.target_map.lattice.step

    def __len__(self) -> int:
        return len(self.mixtures)

    def __repr__(self) -> str:
        num_draws, num_latent, _ = self.mixtures.nodes.shape
        return (
            f"PredictiveDistribution(rows={len(self)}, "
            f"outputs={self.network.output_dim}, weight_draws={num_draws}, "
            f"latent_draws={num_latent})"
        )

    def __getitem__(self, index) -> "PredictiveDistribution":
        """The rows that `index` (number, slice, mask or list of numbers) picks."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        part = copy.copy(self)
        part.__dict__.pop("_moments", None)  # those of all rows
        part.mixtures = self.mixtures.pick(rows)
        part._row_ids = self._row_ids[rows]
        return part

    def starting_at(self, row: int) -> "PredictiveDistribution":
        """The same rows, numbered from `row` on: a piece of a longer table.

        Samples then are what they would be had the whole table been predicted at once.
        """
        part = self[:]
        part._row_ids = part._row_ids + np.uint32(row)
        return part

    # ----- Moments --------------------------------------------------------------------

    @functools.cached_property
    def _moments(self):
        # Both come from one pass over the mixtures.
        return self._map(self._statistics.moments, shared=self._statistics.shared)

    def mean(self) -> np.ndarray:
        """E[y|x]."""
        found = self._statistics
        return self._drop(found.offset + found.unit * self._moments[0])

    def variance(self) -> np.ndarray:
        """Var[y|x], noise included."""
        return self._drop(self._moments[1] * self._statistics.unit**2)

    def std(self) -> np.ndarray:
        """Standard deviation of y given x, noise included."""
        return np.sqrt(self.variance())

    # ----- Probabilities and densities ------------------------------------------------

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log p(y|x), [N]: the joint density of all outputs. Finite in far tails.

        A rounded output has no density. In its place stands P(y)/step for the value
        nearest to y, the density of y plus uniform noise of one step, so that the
        result can be compared with densities; `log_mass` has the probability itself.
        """
        targets = self._targets(y, "y")
        if self.target_map.rounded.any():
            found = self._log_masses(targets, np.ones(targets.shape[1], bool))
        else:
            found = map_log_probabilities(
                row_statistics.log_prob,
                row_statistics.weighted_log_prob,
                self.mixtures,
                self.target_map.to_training(targets),
            )
        return found + self.target_map.log_unit(targets).sum(axis=1)

    def pdf(self, y: ArrayLike) -> np.ndarray:
        """p(y|x), [N]: the exponential of `log_prob`."""
        return np.exp(self.log_prob(y))

    def log_mass(self, y: ArrayLike, output: int | None = None) -> np.ndarray:
        """Log P(y|x), [N]: the probability of the possible value nearest to y.

        Args:
            y: values of all outputs, which must all be rounded; the result is their
                joint probability. With `output`, values of that output, [N].
            output: which output, if not all of them.
        """
        counted = self.target_map.outputs_with_mass(output)
        if output is None:
            targets = self._targets(y, "y")
        else:
            column = rows_of_numbers("y", y, (len(self), 1), single_output=True)
            targets = np.where(counted, column, 0.0)
        return self._log_masses(targets, counted)

    def prob_mass(self, y: ArrayLike, output: int | None = None) -> np.ndarray:
        """P(y|x), [N]: the exponential of `log_mass`."""
        return np.exp(self.log_mass(y, output))

    def _log_masses(self, targets: np.ndarray, counted: np.ndarray) -> np.ndarray:
        """Joint log mass of the outputs that count; log density if not rounded."""
        return map_log_probabilities(
            row_statistics.log_mass,
            row_statistics.weighted_log_mass,
            self.mixtures,
            self.target_map.cell_edges(targets),
            (self.target_map.rounded, counted),
        )

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y) for each output."""
        edges = self.target_map.upper_edge(self._targets(y, "y"))
        return self._drop(self._map(row_statistics.cdf, edges))

    def prob_above(self, threshold: ArrayLike) -> np.ndarray:
        """P(y' > threshold) for each output; `threshold` is one number or an array."""
        edges = self.target_map.upper_edge(self._targets(threshold, "threshold"))
        return self._drop(self._map(row_statistics.prob_above, edges))

    def pit(self, y: ArrayLike, seed: int | np.integer = 0) -> np.ndarray:
        """The cdf at y for each output: uniform on [0, 1] if predictions are right.

        Where y is rounded the cdf jumps; the value then is drawn at random, by `seed`,
        between P(y' < y) and P(y' <= y).
        """
        lower, upper = self.target_map.cell_edges(self._targets(y, "y"))
        up_to = self._map(row_statistics.cdf, upper)
        if self.target_map.rounded.any():
            below = self._map(row_statistics.cdf, lower)
            share = np.random.default_rng(seed).uniform(size=up_to.shape)
            up_to = below + share * (up_to - below)
        return self._drop(up_to)

    def log_prob_grid(self, values: ArrayLike, output: int = 0) -> np.ndarray:
        """Log density of one output, before rounding, at G values for each row, [N, G].

        This is for pictures: it is the smooth density, also if y is rounded, and in far
        tails, where few values of z reach, `log_prob` is more accurate.

        Args:
            values: [G], the same for all rows, or [N, G], each row's own.
            output: which output.
        """
        values = grid_of_numbers("values", values, len(self))
        output = self.target_map.checked_output(output)
        one = self.target_map.of_output(output)
        log_slope = one.log_slope(values[..., None])[..., 0]
        points = one.to_training(values[..., None])[..., 0]
        if values.ndim == 2:
            asked = row_statistics.log_prob_at_points, points, np.int32(output)
        else:
            asked = row_statistics.log_prob_on_grid, (), (points, np.int32(output))
        return self._map(*asked, values_per_row=values.shape[-1]) + log_slope

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Continuous ranked probability score of each output; smaller is better."""
        found = self._statistics
        targets = (self._targets(y, "y") - found.offset) / found.unit
        scores = self._map(found.crps, targets.astype(np.float32), found.shared)
        return self._drop(scores * found.unit)

    # ----- Quantiles and intervals ----------------------------------------------------

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Values with probability `q` below them.

        Of a rounded output, the smallest value up to which the probability is at least
        `q`.

        Args:
            q: one number in (0, 1), or a list of Q of them, which adds a last axis Q.
        """
        levels = intervals.quantile_levels(q)
        found = intervals.quantiles(self.mixtures, levels.reshape(-1))
        found = self.target_map.from_training(np.swapaxes(found, 1, 2))
        found = np.swapaxes(self.target_map.nearest(found), 1, 2)
        found = found[:, 0] if self.single_output else found
        return found if levels.ndim else found[..., 0]

    def median(self) -> np.ndarray:
        """The value with as much probability below it as above."""
        return self.quantile(0.5)

    def interval(
        self, level: float = 0.95, kind: str = "central", output: int | None = None
    ):
        """Where y lies with probability `level`, or more if y is rounded.

        Args:
            level: a number in (0, 1).
            kind: "central" leaves out equal probability on both sides;
                "highest_density" is the smallest set, which may be several intervals.
            output: which output; "highest_density" needs it if there are several.

        Returns:
            For "central" two arrays, lower and upper ends. For "highest_density" a list
            with one array of rows [lower, upper] for each row.
        """
        level = intervals.checked_level(level)
        one_of("kind", kind, intervals.KINDS)
        if kind == "highest_density":
            return intervals.highest_density_sets(
                self.mixtures, self.target_map, level, output
            )
        ends = self.quantile([(1 - level) / 2, (1 + level) / 2])
        if output is not None and not self.single_output:
            ends = ends[:, self.target_map.checked_output(output)]
        return ends[..., 0], ends[..., 1]

    # ----- Samples --------------------------------------------------------------------

    def sample(self, n: int, seed: int | np.integer | None = None) -> np.ndarray:
        """Random draws of y, [n, N] or [n, N, L], independent between rows.

        Each draw takes a new W, a new z from its prior and new noise. A row's draws
        depend on `seed` and on its place among the rows first predicted (which
        `predictive[...]` keeps), so that equal inputs still have independent draws.
        Without a seed it is 0: the same call gives the same draws.
        """
        n, seed = whole_number("n", n), checked_seed(seed)
        drawn = samples.sample_rows(self.mixtures, self._row_ids, n, seed)
        return self._samples_first(self.target_map.draws_of_y(drawn))

    def sample_functions(
        self,
        n: int,
        seed: int | np.integer | None = None,
        latent: str = "mean",
        include_noise: bool = False,
    ) -> np.ndarray:
        """Random functions at the rows, [n, N] or [n, N, L]: each uses one W for all.

        The weight draws are used in random order, each once before any comes again.
        Functions with noise are draws of y; those without are not rounded.

        Args:
            n: number of functions.
            seed: of their choice and of what else is random; 0 if not given.
            latent: "mean" averages f over z, which gives the mean of y given x and W
                (as Thompson sampling wants), or, if y was transformed, a typical y that
                is not its mean; "prior" draws z for each row; "shared" draws one z for
                each function and uses it for all rows.
            include_noise: add output noise, drawn for each row.
        """
        n, seed = whole_number("n", n), checked_seed(seed)
        one_of("latent", latent, samples.LATENT_CHOICES)
        drawn = samples.sample_functions(
            self.mixtures, self._row_ids, n, seed, latent, include_noise
        )
        return self._samples_first(self.target_map.draws_of_y(drawn, include_noise))

    # ----- Decomposition --------------------------------------------------------------

    def decompose(
        self,
        measure: str = "variance",
        method: str = "monte_carlo",
        num_weight_draws: int | None = None,
        num_latent_draws: int | None = None,
        k: int = 5,
        seed: int | np.integer = 0,
    ) -> Decomposition:
        """Split each row's uncertainty into aleatoric and epistemic parts.

        The parts add up to the total. They are variances, not standard deviations: take
        their root for the units of y, as `ncai predict --decompose` does. If y is
        rounded, the total variance is that of the rounded y, `variance()`, and the
        epistemic part that of the mean of y before rounding; entropies are those of y
        before rounding.

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
        one_of("measure", measure, decomposition.MEASURES)
        one_of("method", method, decomposition.METHODS)
        seed = checked_seed(seed)
        mixtures = decomposition.split_mixtures(
            self.mixtures, num_weight_draws, num_latent_draws, self.num_latent_draws
        )
        if measure == "variance":
            parts = decomposition.variance_decomposition(mixtures, self.target_map)
            aleatoric, epistemic = map(self._drop, parts)
            by_all_draws = num_weight_draws is None and num_latent_draws is None
            if by_all_draws or self.target_map.rounded.any():
                return Decomposition.of_variances(self.variance(), epistemic)
            return Decomposition(aleatoric + epistemic, aleatoric, epistemic)
        num_samples = 256 if num_latent_draws is None else int(num_latent_draws)
        return decomposition.entropy_decomposition(
            mixtures, self.target_map, method, num_samples, k, seed
        )

    # ----- Inside ---------------------------------------------------------------------

    def _map(self, statistic, arguments=(), shared=(), values_per_row: int = 1):
        return map_mixtures(statistic, self.mixtures, arguments, shared, values_per_row)

    def _drop(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self.single_output else values

    def _samples_first(self, drawn: np.ndarray) -> np.ndarray:
        drawn = np.moveaxis(drawn, 1, 0)
        return drawn[..., 0] if self.single_output else drawn

    def _targets(self, values: ArrayLike, name: str) -> np.ndarray:
        shape = (len(self), self.network.output_dim)
        return rows_of_numbers(name, values, shape, self.single_output)
