"""The posterior predictive p(y|x, D): densities, intervals, samples, decomposition."""

import copy
import functools

import numpy as np
from numpy.typing import ArrayLike

from ncai.model.networks import FlatNetwork
from ncai.predictive import decomposition, intervals, row_statistics, samples
from ncai.predictive.decomposition import Decomposition, Neighbours
from ncai.predictive.moments import statistics_of
from ncai.predictive.row_map import Mixtures, map_mixtures
from ncai.predictive.samples import checked_seed
from ncai.predictive.target_map import TargetMap, grid_of_numbers, rows_of_numbers
from ncai.runtime.arguments import one_of, whole_number
from ncai.types import WeightDraws


class PredictiveDistribution:
    """The predictive distributions of N rows, in the units of y.

    On the scale of training, the density of each row is a mixture of Gaussians. It is
    the posterior predictive (Eq. `posterior-predictive`), whose integrals are replaced
    by sums over weight draws, over `num_latent_draws` nodes of z and over the widths of
    the noise. `target_map` converts this density to y. Each method computes its result
    when it is called, in pieces of bounded memory. The result for a row does not depend
    on the other rows.

    If y is rounded, moments, probabilities, quantiles, intervals, scores and samples
    refer to the rounded y. Only `log_prob_grid`, `decompose` and `sample_functions`
    without noise refer to y before rounding.

    Given the draws, probabilities, densities and quantiles are exact. The CRPS, and the
    moments of a y that is transformed or rounded, are deterministic approximations (see
    `moments.statistics_of`).

    With `single_output`, arrays have the shape [N]; otherwise they have [N, L].

    Args:
        network: f(x, z; W).
        inputs: N rows of D inputs, on the scale that the network was trained on.
        draws: weight draws and their noise, on the scale that the network was trained
            on.
        target_map: the map from the scale of training to y.
        num_latent_draws: number of nodes of z for each weight draw.
        single_output: whether results have no axis of outputs, which needs L = 1.
    """

    def __init__(
        self,
        *,
        network: FlatNetwork,
        inputs: ArrayLike,
        draws: WeightDraws,
        target_map: TargetMap,
        num_latent_draws: int = 16,
        single_output: bool,
    ):
        self.num_latent_draws = int(num_latent_draws)
        self.mixtures = Mixtures.of(network, draws, self.num_latent_draws, inputs)
        self.target_map = target_map
        self.single_output = single_output
        self._statistics = statistics_of(target_map)
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
        num_draws, num_latent, _ = self.mixtures.nodes.values.shape
        return (
            f"PredictiveDistribution(rows={len(self)}, "
            f"outputs={self.network.output_dim}, weight_draws={num_draws}, "
            f"latent_draws={num_latent})"
        )

    def __getitem__(self, index) -> "PredictiveDistribution":
        """Return the rows that `index` selects: a number, slice, mask or list."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        part = copy.copy(self)
        part.__dict__.pop("_moments", None)  # the cached moments of all rows
        part.mixtures = self.mixtures.pick(rows)
        part._row_ids = self._row_ids[rows]
        return part

    def starting_at(self, row: int) -> "PredictiveDistribution":
        """Return the same rows, numbered from `row` on, as a piece of a longer table.

        Samples are then the same as if the whole table had been predicted at once.
        """
        part = self[:]
        part._row_ids = part._row_ids + np.uint32(row)
        return part

    # ----- Moments --------------------------------------------------------------------

    @functools.cached_property
    def _moments(self):
        # One pass over the mixtures gives the mean and the variance.
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
        """Log p(y|x), [N]: the joint density of all outputs. It is finite in far tails.

        A rounded output has no density. For it, this method uses P(y) / step at the
        lattice value nearest to y. This is the density of y plus uniform noise of one
        lattice step, so it can be compared with other densities. `log_mass` returns the
        log of the probability itself.
        """
        targets = self._targets(y, "y")
        if self.target_map.rounded.any():
            found = self._log_masses(targets, np.ones(targets.shape[1], bool))
        else:
            u = self.target_map.to_training(targets)
            found = self._map(row_statistics.log_prob, u)
        return found + self.target_map.log_unit(targets).sum(axis=1)

    def pdf(self, y: ArrayLike) -> np.ndarray:
        """p(y|x), [N]: the exponential of `log_prob`."""
        return np.exp(self.log_prob(y))

    def log_mass(self, y: ArrayLike, output: int | None = None) -> np.ndarray:
        """Log P(y|x), [N]: the log probability of the lattice value nearest to y.

        Args:
            y: values of all outputs, which must all be rounded; the result is their
                joint probability. If `output` is given, values of that output, [N].
            output: number of the output; None for all outputs together.
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
        """Joint log mass of the counted outputs (log density where not rounded)."""
        edges = self.target_map.cell_edges(targets)
        masks = (self.target_map.rounded, counted)
        return self._map(row_statistics.log_mass, edges, masks)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y) for each output."""
        edges = self.target_map.upper_edge(self._targets(y, "y"))
        return self._drop(self._map(row_statistics.cdf, edges))

    def prob_above(self, threshold: ArrayLike) -> np.ndarray:
        """P(y' > threshold) for each output; `threshold` is one number or an array."""
        edges = self.target_map.upper_edge(self._targets(threshold, "threshold"))
        return self._drop(self._map(row_statistics.prob_above, edges))

    def pit(self, y: ArrayLike, seed: int | np.integer = 0) -> np.ndarray:
        """The cdf at y for each output; uniform on [0, 1] for a calibrated model.

        If y is rounded, the cdf jumps at y. The result is then a random draw between
        P(y' < y) and P(y' <= y), which `seed` determines.
        """
        lower, upper = self.target_map.cell_edges(self._targets(y, "y"))
        up_to = self._map(row_statistics.cdf, upper)
        if self.target_map.rounded.any():
            below = self._map(row_statistics.cdf, lower)
            share = np.random.default_rng(seed).uniform(size=up_to.shape)
            up_to = below + share * (up_to - below)
        return self._drop(up_to)

    def log_prob_grid(self, values: ArrayLike, output: int = 0) -> np.ndarray:
        """Log density of one output before rounding, at G values for each row: [N, G].

        This is meant for pictures: it is the smooth density even if y is rounded.

        Args:
            values: [G], the same values for all rows, or [N, G], values for each row.
            output: number of the output.
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
        """The value that y stays below with probability `q`, for each row.

        For a rounded output, it is the smallest lattice value v with P(y <= v) >= q.

        Args:
            q: one number in (0, 1), or a list of Q numbers, which adds a last axis Q.
        """
        levels = intervals.quantile_levels(q)
        found = intervals.quantiles(self.mixtures, levels.reshape(-1))
        found = self.target_map.from_training(np.swapaxes(found, 1, 2))
        found = np.swapaxes(self.target_map.nearest(found), 1, 2)
        found = found[:, 0] if self.single_output else found
        return found if levels.ndim else found[..., 0]

    def median(self) -> np.ndarray:
        """The median of y given x."""
        return self.quantile(0.5)

    def interval(
        self, level: float = 0.95, kind: str = "central", output: int | None = None
    ):
        """Intervals that contain y with probability `level`, or more if y is rounded.

        Args:
            level: a number in (0, 1).
            kind: "central" leaves out the same probability on both sides;
                "highest_density" gives the smallest set, which may consist of several
                intervals.
            output: number of the output; "highest_density" needs it if there are
                several.

        Returns:
            For "central": two arrays, the lower and the upper ends. For
            "highest_density": a list with an array of intervals [lower, upper] for each
            row.
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

        Each draw uses a new W, a new z from its prior and new noise. The draws of a row
        depend on `seed` and on the position of the row in the table that was predicted
        (`predictive[...]` keeps this position). Two rows with equal inputs therefore
        have independent draws. The default seed is 0, so the same call gives the same
        draws.
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
        """Random functions at the rows, [n, N] or [n, N, L]: one W for all rows.

        A function uses one of the weight draws. How often a draw is used depends on its
        weight in the mixture, and the order is random. Functions with noise are draws
        of y; functions without noise are not rounded.

        Args:
            n: number of functions.
            seed: seed of all random choices; 0 if not given.
            latent: "mean" averages f over z. This gives the mean of y given x and W, as
                Thompson sampling needs; if y was transformed, it gives a typical y that
                is not the mean. "prior" draws z for each row. "shared" draws one z for
                each function and uses it for all rows.
            include_noise: whether to add output noise, which is drawn for each row.
        """
        n, seed = whole_number("n", n), checked_seed(seed)
        one_of("latent", latent, samples.LATENT_CHOICES)
        drawn = samples.sample_functions(
            self.mixtures, self._row_ids, n, seed, latent, include_noise
        )
        return self._samples_first(self.target_map.draws_of_y(drawn, include_noise))

    # ----- Decomposition --------------------------------------------------------------

    given = "weights"  # what the aleatoric part is conditional on

    def decomposed_given(self, given: str) -> "PredictiveDistribution":
        """Return the same distributions, with an aleatoric part given this.

        "weights": draws of W disagree, as in the paper. "member": members do, because
        the draws of a member are pooled.
        """
        one_of("given", given, decomposition.CONDITIONS)
        found = copy.copy(self)
        found.given = given
        return found

    def decompose(
        self,
        measure: str = "crps",
        method: str = "quadrature",
        num_samples: int = 256,
        k: int = 5,
        seed: int | np.integer = 0,
    ) -> Decomposition:
        """Split the uncertainty of each row into an aleatoric and an epistemic part.

        The parts add up to the total. They are never negative, except that an entropy
        can be. If y is rounded, they refer to y before rounding. In an ensemble of cold
        posteriors, a member takes the place of W (see `decomposed_given`).

        Args:
            measure: "crps" gives parts for each output, in units of y. The total is the
                integral of F(1 - F) over y, where F is the cdf; the aleatoric part is
                the same integral given W, averaged over W; the epistemic part is the
                integral of the variance of F over W. "variance" uses the law of total
                variance for each output, in squared units of y; with heavy tails, it
                depends on a few draws. "entropy" gives parts for all outputs together,
                in nats (Eqs. `aleatoric` and `epistemic`).
            method: how to compute the entropy: "quadrature" (with several outputs, log
                densities of samples), or the paper's "nearest_neighbour" estimate.
            num_samples: samples of each draw of W, for "nearest_neighbour".
            k: number of neighbours, for the same.
            seed: seed of the samples.
        """
        one_of("measure", measure, decomposition.MEASURES)
        one_of("method", method, decomposition.METHODS)
        seed, samples = checked_seed(seed), whole_number("num_samples", num_samples)
        if measure == "entropy":
            neighbours = None
            if method == "nearest_neighbour":
                neighbours = Neighbours(samples, k)
            return decomposition.entropy_decomposition(
                self.mixtures, self.target_map, self.given, seed, neighbours
            )
        split = decomposition.OF_EACH_OUTPUT[measure]
        found = split(self.mixtures, self.target_map, self.given)
        return found.of_output(0) if self.single_output else found

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
