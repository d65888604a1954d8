"""The draws of HMC that `decomposition` compares with: problems, files, how they mixed."""

from ncai.model.bnn_lv import Model
from ncai.model.networks import MLP, FlatNetwork
from ncai.study.experiments.problems import KnownProblem, known_problem

DATASET, DRAW = "depeweg", 0


def reference_problem(hidden: int) -> KnownProblem:
    """Depeweg's rows, s_w, s_z and s_eps with a hidden layer of this size.

    The truth belongs to the network that made the rows, whatever the size is.
    """
    known = known_problem(DATASET, DRAW)
    model = known.model
    network = FlatNetwork(MLP((hidden,)), 1, 1, 1)
    priors = model.weight_variance, model.latent_variance, model.noise_variance
    return known._replace(model=Model(network, *priors))
