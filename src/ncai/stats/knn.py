"""Nearest-neighbour estimates: KSG mutual information and kNN entropy.

KSG is the estimator of Kraskov, Stoegbauer and Grassberger (2004). The entropy is that
of Kozachenko and Leonenko (1987), for points and, faster, for numbers.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

from ncai.stats import as_matrix, check_neighbours, standardise, without_ties

# Neighbours that we list for each row before we try many permutations.
_NEIGHBOUR_LIST = 256
# We keep the distances between all pairs of rows up to this many.
_MOST_PAIRS = 10_000_000


def mutual_information(a: ArrayLike, b: ArrayLike, k: int = 5, seed: int = 0) -> float:
    """Mutual information of two vectors in nats: KSG (Kraskov et al., 2004, eq. 8).

    psi(k) + psi(N) - mean of psi(n_a + 1) + psi(n_b + 1), where n_a and n_b count the
    rows strictly nearer than the k-th neighbour in the joint space, all in the maximum
    norm. It is the joint information of all columns, which is not the sum over single
    columns.

    For independent rows the estimate scatters around 0 and may be negative; it is not
    clipped. Columns are first scaled to mean 0 and standard deviation 1: this does not
    change the mutual information, but it does change which rows are neighbours.
    Constant columns carry no information and are left out.

    Args:
        a: `[N, D]` values.
        b: `[N, K]` values of the same rows.
        k: number of neighbours; 5 in the paper.
        seed: of the tiny noise that separates equal rows.
    """
    a, b = _neighbour_columns(a, b, k, seed)
    if not (a.size and b.size):
        return 0.0
    return _tree_information(a, b, KDTree(a), KDTree(b), k)


def permuted_mutual_information(
    a: ArrayLike, b: ArrayLike, num_permutations: int, k: int = 5, seed: int = 0
) -> np.ndarray:
    """`mutual_information(a, b)` after random permutations of the rows of one side.

    This samples its distribution for independent a and b.

    Returns:
        `[num_permutations]` values.
    """
    a, b = _neighbour_columns(a, b, k, seed)
    if not (a.size and b.size):
        return np.zeros(num_permutations)
    if b.shape[1] > a.shape[1]:
        a, b = b, a  # neighbour lists prune best on the side with more columns
    rng = np.random.default_rng(seed)
    # Permutations only change the pairing, so we find the neighbours in a once.
    size = min(len(a), max(_NEIGHBOUR_LIST, k + 1))
    gaps, neighbours = KDTree(a).query(a, size, p=np.inf)
    count_near_b = _distance_counter(b)
    found = np.empty(num_permutations)
    for i in range(num_permutations):
        order = rng.permutation(len(b))
        near_a, radius = _listed_counts(a, b[order], gaps, neighbours, k)
        found[i] = _kraskov(near_a, count_near_b(order, radius), k)
    return found


def _neighbour_columns(a, b, k, seed) -> tuple[np.ndarray, np.ndarray]:
    """Both sides standardised, without constant columns and without ties."""
    a, b = as_matrix(a, "a"), as_matrix(b, "b")
    if len(a) != len(b):
        raise ValueError(f"a has {len(a)} rows but b has {len(b)}.")
    check_neighbours(k, len(a))
    rng = np.random.default_rng(seed)
    a, b = standardise(a), standardise(b)
    a, b = a[:, a.any(axis=0)], b[:, b.any(axis=0)]
    return without_ties(a, rng), without_ties(b, rng)


def _tree_information(a, b, tree_a: KDTree, tree_b: KDTree, k: int) -> float:
    joint = np.hstack([a, b])
    radius = KDTree(joint).query(joint, k + 1, p=np.inf)[0][:, k]
    # Balls are closed: the next smaller radius makes "nearer than" strict.
    radius = np.nextafter(radius, 0)
    near_a = tree_a.query_ball_point(a, radius, p=np.inf, return_length=True)
    near_b = tree_b.query_ball_point(b, radius, p=np.inf, return_length=True)
    return _kraskov(near_a, near_b, k)


def _listed_counts(a, b, gaps, neighbours, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows near in a, and the joint radius, from lists of neighbours in a, `[N, M]`.

    A row that is near in the joint space is also near in a, so it is on the list.
    """
    joint = gaps
    for column in b.T:
        joint = np.maximum(joint, np.abs(column[neighbours] - column[:, None]))
    radius = np.partition(joint, k, axis=1)[:, k]
    near_a = np.count_nonzero(gaps < radius[:, None], axis=1)
    short = np.flatnonzero(radius > gaps[:, -1])
    if len(short):  # these lists are too short to be sure of the k-th neighbour
        all_a = cdist(a[short], a, "chebyshev")
        joint = np.maximum(all_a, cdist(b[short], b, "chebyshev"))
        radius[short] = np.partition(joint, k, axis=1)[:, k]
        near_a[short] = np.count_nonzero(all_a < radius[short, None], axis=1)
    return near_a, radius


def _distance_counter(points: np.ndarray):
    """A function (rows, radius) that counts the points nearer to a row than a radius.

    If all distances fit in memory it searches them sorted, far faster than a tree.
    """
    num_points = len(points)
    if num_points**2 > _MOST_PAIRS:
        tree = KDTree(points)
        return lambda rows, radius: tree.query_ball_point(
            points[rows], np.nextafter(radius, 0), p=np.inf, return_length=True
        )
    distances = np.sort(cdist(points, points, "chebyshev"), axis=1)

    def count(rows, radius):
        found = np.zeros(len(rows), int)
        step = 1 << num_points.bit_length()
        while step := step // 2:
            ahead = np.minimum(found + step, num_points)
            found = np.where(distances[rows, ahead - 1] < radius, ahead, found)
        return found

    return count


def _kraskov(near_a: np.ndarray, near_b: np.ndarray, k: int) -> float:
    """The estimate from counts that include the row itself (n + 1 in the formula)."""
    counts = np.mean(digamma(near_a) + digamma(near_b))
    return float(digamma(k) + digamma(len(near_a)) - counts)


def knn_entropy(samples: ArrayLike, k: int = 5, seed: int = 0) -> float:
    """Differential entropy in nats (Kozachenko and Leonenko, 1987).

    psi(N) - psi(k) + log V_L + L * mean of log r_n, with r_n the Euclidean distance of
    row n to its k-th neighbour and V_L the volume of the unit ball in L dimensions.

    Args:
        samples: `[N, L]` rows. With a constant column there is no density, and the
            entropy is -inf.
        k: number of neighbours. The bias falls with N and grows with k: it is -0.03
            for 4,000 rows of a Gaussian in 3 dimensions and k = 5.
        seed: of the tiny noise that separates equal rows.
    """
    samples = as_matrix(samples, "samples")
    num_samples, dim = samples.shape
    check_neighbours(k, num_samples)
    std = samples.std(axis=0)
    if not standardise(samples).any(axis=0).all():
        return float("-inf")
    samples = std * without_ties(samples / std, np.random.default_rng(seed))
    distance = KDTree(samples).query(samples, k + 1)[0][:, k]
    log_volume = dim / 2 * np.log(np.pi) - gammaln(dim / 2 + 1)
    return float(
        digamma(num_samples) - digamma(k) + log_volume + dim * np.log(distance).mean()
    )


def sorted_knn_entropy(samples: np.ndarray, k: int) -> np.ndarray:
    """`knn_entropy` of each row of numbers `[groups, n]`, fast: all groups at once.

    psi(n) - psi(k) + log 2 + mean of log r. Among sorted numbers, a number and its k
    nearest neighbours form one of k + 1 windows, so r is the smallest radius of these.
    """
    ordered = np.sort(samples, axis=-1)
    num = ordered.shape[-1]
    padded = np.pad(
        ordered, ((0, 0), (k, k)), constant_values=((0.0, 0.0), (-np.inf, np.inf))
    )
    radius = np.full_like(ordered, np.inf)
    for before in range(k + 1):
        first = padded[:, k - before : k - before + num]
        last = padded[:, 2 * k - before : 2 * k - before + num]
        radius = np.minimum(radius, np.maximum(ordered - first, last - ordered))
    radius = np.maximum(radius, np.finfo(float).tiny)
    return digamma(num) - digamma(k) + np.log(2) + np.log(radius).mean(-1)
