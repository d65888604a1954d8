"""Six one-dimensional sets with a known truth.

Heavy-Tail, Depeweg and Bimodal come from a known network with a latent input. We fitted
the network to a formula f_GT once (`scripts/fit_ground_truth.py`), ship its weights
with the package, and make the targets from the *network*, so that the truth lies in the
model class. Goldberg, Yuan and Williams are regressions whose noise depends on the
input.
"""

import functools
import importlib.resources
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from safetensors import safe_open

from ncai.datasets.oracles import GaussianOracle, NetworkOracle, Oracle, Truth

WEIGHTS_FILE = "ground_truth.safetensors"
FORMS = ("literature", "printed")
PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of one part of a set; `latents` is None if the truth has no z."""

    inputs: Float[Array, "N D"]
    targets: Float[Array, "N 1"]
    latents: Float[Array, "N 1"] | None


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """One draw of a synthetic set, with everything known about its truth.

    Args:
        name: one of `dataset_names()`.
        train: rows to learn from.
        valid: rows to choose settings with.
        test: rows to score on.
        oracle: the true process, in raw units.
        truth: the parameters of its network, or None if it has no network.
        standardise: whether the benchmark scores this set in standardised units.
    """

    name: str
    train: Part
    valid: Part
    test: Part
    oracle: Oracle
    truth: Truth | None
    standardise: bool


@dataclass(frozen=True)
class LatentProcess:
    """A set with a latent input, and the formula that its network was fitted to.

    Args:
        noiseless: f_GT(x, z), broadcast over arrays.
        sample_inputs: (generator, number) -> inputs.
        input_range: where nearly all inputs lie.
        hidden: nodes of each hidden layer of the network.
        noise_var: variance of the output noise.
        latent_var: variance of z.
        latent_gap: |z| below this many prior standard deviations is left out when the
            network is fitted and judged, because a continuous network cannot follow a
            jump.
        sizes: rows in the training, validation and test part.
    """

    noiseless: Callable[[Array, Array], Array]
    sample_inputs: Callable[[np.random.Generator, int], Array]
    input_range: tuple[float, float]
    hidden: tuple[int, ...]
    noise_var: float
    latent_var: float
    latent_gap: float
    sizes: tuple[int, int, int]

    def r_squared(
        self,
        function: Callable[[Array, Array], Array],
        num_points: int = 100_000,
        seed: int = 0,
    ) -> float:
        """Share of the variance of f_GT that `function` explains over fresh (x, z).

        Args:
            function: f(x, z) for two columns of equal length.
            num_points: number of draws, including those in the gap, which do not count.
            seed: seed of the draws.
        """
        generator = np.random.default_rng(seed)
        inputs = self.sample_inputs(generator, num_points)[:, None]
        units = generator.standard_normal(inputs.shape)
        keep = np.abs(units[:, 0]) > self.latent_gap
        inputs, latents = inputs[keep], units[keep] * self.latent_var**0.5
        wanted = self.noiseless(inputs, latents)
        error = function(inputs, latents) - wanted
        return float(1.0 - np.mean(error**2) / np.var(wanted))


@dataclass(frozen=True)
class NoisyCurve:
    """A set without latent input: uniform x, and Gaussian noise that depends on x.

    Args:
        mean: the curve.
        noise: the second argument of N(0, .) in the paper, as a function of x.
        noise_is_variance: whether we read it as a variance or a standard deviation.
        high: inputs lie between 0 and this.
        sizes: rows in the training, validation and test part.
    """

    mean: Callable[[Array], Array]
    noise: Callable[[Array], Array]
    noise_is_variance: bool
    high: float = 1.0
    sizes: tuple[int, int, int] = (200, 200, 200)


def _heavy_tail(x, z):
    return 6 * np.tanh(0.1 * x**3 * (z + 1) ** 6 - 10 * x * z**2 + z)


def _depeweg(x, z):
    return 7 * np.sin(x) + 3 * np.abs(np.cos(x / 2)) * z


def _bimodal(x, z):
    return 10 * np.where(z > 0, np.sin(x), np.cos(x))


def _three_clusters(generator, number):
    cluster = generator.integers(3, size=number)
    centres, variances = np.array([-4.0, 0.0, 4.0]), np.array([0.16, 0.81, 0.16])
    noise = generator.standard_normal(number)
    return centres[cluster] + np.sqrt(variances[cluster]) * noise


def _clipped_exponential(generator, number):
    # Rate 2, so mean 1/2. Draws beyond the end are moved to the end, not drawn again.
    return np.clip(generator.exponential(0.5, number) - 0.5, -0.5, 2.0)


LATENT_PROCESSES = MappingProxyType(
    {
        "heavy_tail": LatentProcess(
            noiseless=_heavy_tail,
            sample_inputs=lambda generator, number: generator.uniform(-4, 4, number),
            input_range=(-4.0, 4.0),
            hidden=(50,),
            noise_var=0.1,
            latent_var=0.01,
            latent_gap=0.0,
            sizes=(300, 300, 300),
        ),
        "depeweg": LatentProcess(
            noiseless=_depeweg,
            sample_inputs=_three_clusters,
            input_range=(-5.5, 5.5),
            hidden=(50,),
            noise_var=0.1,
            latent_var=1.0,
            latent_gap=0.0,
            sizes=(750, 250, 250),
        ),
        "bimodal": LatentProcess(
            noiseless=_bimodal,
            sample_inputs=_clipped_exponential,
            input_range=(-0.5, 2.0),
            hidden=(50, 50),
            noise_var=1.0,
            latent_var=0.1,
            latent_gap=0.03,
            sizes=(750, 250, 250),
        ),
    }
)
"""The sets with a latent input, by name."""
OTHER_SIZES = MappingProxyType({"bimodal": ((20, 20), (50,))})
"""Smaller networks that can also be the truth of a set."""


# Named functions and not lambdas, because the oracle contains them and must pickle.
def _goldberg_mean(x):
    return 2 * np.sin(2 * np.pi * x)


def _goldberg_noise(x):
    return x + 0.5


def _yuan_mean(x):
    return 2 * (np.exp(-30 * (x - 0.25) ** 2) + np.sin(np.pi * x**2)) - 2


def _yuan_mean_printed(x):
    return 2 * np.exp(-30 * (x - 0.25) ** 2 + np.sin(np.pi * x**2)) - 2


def _yuan_noise(x):
    return np.exp(np.sin(2 * np.pi * x))


def _williams_mean(x):
    return np.sin(2.5 * x) * np.sin(1.5 * x)


def _williams_noise(x):
    return 0.01 + 0.25 * (1 - np.sin(2.5 * x)) ** 2


_CURVES = {
    "literature": {
        "goldberg": NoisyCurve(_goldberg_mean, _goldberg_noise, False),
        "yuan": NoisyCurve(_yuan_mean, _yuan_noise, False),
        "williams": NoisyCurve(_williams_mean, _williams_noise, False, high=np.pi),
    },
    "printed": {
        "goldberg": NoisyCurve(_goldberg_mean, _goldberg_noise, True),
        "yuan": NoisyCurve(_yuan_mean_printed, _yuan_noise, True),
        "williams": NoisyCurve(_williams_mean, _williams_noise, True),
    },
}

_NAMES = (*LATENT_PROCESSES, *_CURVES["literature"])


def dataset_names() -> tuple[str, ...]:
    """The names that `make_dataset` knows."""
    return _NAMES


@functools.cache
def load_truth(name: str) -> Truth:
    """The stored network of a set with a latent input, with its noise and prior."""
    if name not in LATENT_PROCESSES:
        raise ValueError(
            f"name={name!r} has no network; it must be one of {list(LATENT_PROCESSES)}."
        )
    process = LATENT_PROCESSES[name]
    source = importlib.resources.files("ncai.datasets") / WEIGHTS_FILE
    with (
        importlib.resources.as_file(source) as path,
        safe_open(path, framework="numpy") as file,
    ):
        weights = file.get_tensor(name).astype(np.float64)
    weights.setflags(write=False)  # the cache hands the same array to every caller
    return Truth(process.hidden, weights, process.noise_var, process.latent_var)


def name_of_size(name: str, hidden: tuple[int, ...]) -> str:
    """The stored name of a set's network of another size."""
    return "_".join([name, *map(str, hidden)])


def load_truth_of_size(name: str, hidden: tuple[int, ...]) -> Truth:
    """The stored network of another size, one of `OTHER_SIZES`, for a set."""
    process = LATENT_PROCESSES[name]
    source = importlib.resources.files("ncai.datasets") / WEIGHTS_FILE
    with (
        importlib.resources.as_file(source) as path,
        safe_open(path, framework="numpy") as file,
    ):
        weights = file.get_tensor(name_of_size(name, hidden)).astype(np.float64)
    return Truth(hidden, weights, process.noise_var, process.latent_var)


def make_dataset(
    name: str,
    seed: int = 0,
    form: str = "literature",
    num_train: int | None = None,
    num_valid: int | None = None,
    num_test: int | None = None,
) -> SyntheticData:
    """Draw a synthetic set.

    Each part has its own random stream, so its rows only depend on the seed and on its
    own size.

    Args:
        name: one of `dataset_names()`.
        seed: a whole number of at least 0; each seed is a fresh draw of every part.
        form: for Goldberg, Yuan and Williams: "literature" takes the functions of their
            original sources, which agree with the published interval widths, and
            "printed" takes those that the paper prints. The other sets have one form.
        num_train: number of training rows; None is the paper's number.
        num_valid: number of validation rows; None is the paper's number.
        num_test: number of test rows; None is the paper's number.

    Returns:
        The three parts with the oracle, and the true parameters where they exist.

    Example:
        >>> data = make_dataset("depeweg", seed=3)
        >>> data.train.inputs.shape
        (750, 1)
        >>> limit = data.oracle.log_prob(data.test.inputs, data.test.targets).mean()
    """
    if name not in _NAMES:
        raise ValueError(f"name={name!r} must be one of {list(_NAMES)}.")
    if form not in FORMS:
        raise ValueError(f"form={form!r} must be one of {list(FORMS)}.")
    _check_whole("seed", seed, least=0)
    process, oracle, truth = _process(name, form)
    given = {"num_train": num_train, "num_valid": num_valid, "num_test": num_test}
    parts = {}
    for index, (part, (label, size)) in enumerate(
        zip(PARTS, given.items(), strict=True)
    ):
        size = process.sizes[index] if size is None else size
        _check_whole(label, size, least=1)
        key = (_NAMES.index(name), index)
        stream = np.random.SeedSequence(int(seed), spawn_key=key)
        parts[part] = _draw(process, oracle, np.random.default_rng(stream), int(size))
    return SyntheticData(
        name=name, **parts, oracle=oracle, truth=truth, standardise=truth is None
    )


def _process(
    name: str, form: str
) -> tuple[LatentProcess | NoisyCurve, Oracle, Truth | None]:
    """Return the process of a set, its oracle, and its true parameters if known."""
    if name in LATENT_PROCESSES:
        truth = load_truth(name)
        return LATENT_PROCESSES[name], NetworkOracle(truth), truth
    curve = _CURVES[form][name]
    oracle = GaussianOracle(curve.mean, curve.noise, curve.noise_is_variance)
    return curve, oracle, None


def _check_whole(label: str, value, least: int) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{label}={value!r} must be a whole number >= {least}.")


def _draw(process, oracle, generator, number: int) -> Part:
    if isinstance(process, NoisyCurve):
        inputs = generator.uniform(0.0, process.high, number)[:, None]
        return Part(inputs, oracle.draw(inputs, generator), None)
    inputs = process.sample_inputs(generator, number)[:, None]
    targets, latents = oracle.draw(inputs, generator)
    return Part(inputs, targets, latents)
