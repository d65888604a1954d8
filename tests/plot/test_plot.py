"""Pictures: what is drawn where, without looking at pixels."""

from types import SimpleNamespace

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from helpers import one_input, three_inputs
from ncai import plot
from ncai.datasets import make_dataset
from ncai.inference.latents import LatentPosterior
from ncai.types import Rows


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return make_dataset("heavy_tail", seed=0, num_train=50)


def test_density_of_an_oracle_is_normalised(data):
    x, y = data.train.inputs, data.train.targets
    ax = plot.density(data.oracle, x, y, y_limits=(-15, 15), grid=(20, 400))
    shades = ax.images[0].get_array()
    assert shades.shape == (400, 20)
    np.testing.assert_allclose(shades.sum(axis=0) * 30 / 399, 1, rtol=0.01)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
    assert ax.get_ylim() == (-15, 15)


def test_density_lines_are_those_of_the_model(data):
    class Predictive:
        def __init__(self, x):
            self.x = np.asarray(x)[:, 0]

        def mean(self):
            return self.x

        def quantile(self, levels):
            return self.x[:, None] + np.asarray(levels)

        network = SimpleNamespace(output_dim=1)

        def log_prob_grid(self, values):
            return -((values - self.x[:, None]) ** 2)

    def predict_dist(inputs):
        assert list(inputs.columns) == ["dose"]  # the name it was fitted with
        return Predictive(inputs)

    model = SimpleNamespace(
        n_features_in_=1,
        feature_names_in_=np.array(["dose"]),
        predict_dist=predict_dist,
    )
    axes = plt.subplots(1, 2)[1]
    used = plot.density(
        model, data.train.inputs, data.train.targets, axes[1], level=0.8, grid=(9, 7)
    )
    assert used is axes[1]
    points, mean, lower, upper = (line.get_xydata() for line in used.lines)
    np.testing.assert_array_equal(points[:, 0], data.train.inputs[:, 0])
    np.testing.assert_allclose(mean[:, 0], mean[:, 1])
    np.testing.assert_allclose(upper[:, 1] - lower[:, 1], 0.8)
    assert used.get_xlabel() == "dose"
    with pytest.raises(ValueError, match=r"level=0.9 must be 0.5, 0.8 or 0.95"):
        plot.density(model, data.train.inputs, data.train.targets, level=0.9)


def test_latent_undoes_the_scaling():
    rng = np.random.default_rng(0)
    raw, z = rng.uniform(5, 9, size=(40, 2)), rng.normal(size=(40, 3))
    shift, scale = raw.mean(axis=0), raw.std(axis=0)
    model = SimpleNamespace(
        latent_posterior_=LatentPosterior(z, np.ones_like(z)),
        scaling_=SimpleNamespace(input_shift=shift, input_scale=scale),
        training_rows_=Rows((raw - shift) / scale, np.zeros((40, 1)), np.ones(40)),
        posterior_=SimpleNamespace(latent_prior_std=lambda: 0.5),
    )
    ax = plot.latent(model, feature=1, dimension=2)
    points, below, above = ax.lines
    np.testing.assert_allclose(points.get_xdata(), raw[:, 1])
    np.testing.assert_array_equal(points.get_ydata(), z[:, 2])
    assert (below.get_ydata()[0], above.get_ydata()[0]) == (-1.0, 1.0)


def test_no_point_lies_on_the_edge(data):
    x = data.train.inputs
    for ax in (
        plot.density(data.oracle, x, data.train.targets, grid=(9, 9)),
        plot.latent_values(x, np.zeros_like(x), 1.0),
    ):
        low, high = ax.get_xlim()
        assert low < x.min() - 0.1
        assert high > x.max() + 0.1


def test_refusals(data):
    with pytest.raises(ValueError, match="no latents to show"):
        plot.latent(SimpleNamespace(latent_posterior_=None))
    with pytest.raises(ValueError, match=r"X has shape \(50, 2\)"):
        plot.density(data.oracle, np.zeros((50, 2)), data.train.targets)
    with pytest.raises(ValueError, match="50 rows and y has 3"):
        plot.density(data.oracle, data.train.inputs, np.zeros(3))


# ----- Fitted models ------------------------------------------------------------------


def test_density_of_a_fitted_model_says_its_units():
    model, X, y = one_input()
    ax = plot.density(model, X, y, grid=(8, 40), x_unit="mg", y_unit="s")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("dose (mg)", "y (s)")
    step = np.ptp(ax.get_ylim()) / 39
    # Most of the density lies within the picture.
    assert (0.5 < ax.images[0].get_array().sum(axis=0) * step).all()


def test_density_over_one_of_several_inputs():
    model, X, y = three_inputs()
    with pytest.raises(ValueError, match=r"3 inputs.*feature="):
        plot.density(model, X, y)
    with pytest.raises(ValueError, match="'nothing' must be one of"):
        plot.density(model, X, y, feature="nothing")
    with pytest.raises(ValueError, match=r"X has shape \(50, 1\)"):
        plot.density(model, X[["idle"]], y, feature="idle")
    with pytest.raises(ValueError, match="'mean' must be 'median' or 'average'"):
        plot.density(model, X, y, feature="idle", others="mean")
    shades = [
        plot.density(model, X, y, feature="idle", others=others, grid=(6, 30))
        .images[0]
        .get_array()
        for others in ("median", "average")
    ]
    # The others vary a lot, so that averaging over them flattens the density.
    assert shades[1].max() < 0.8 * shades[0].max()


def test_calibration_and_pit_count_rows():
    model, X, y = one_input()
    ax = plot.calibration(model, X, y)
    line = ax.lines[-1].get_xydata()
    pit = model.predict_dist(X).cdf(y)
    assert line[50, 1] == pytest.approx(np.mean(np.abs(pit - 0.5) <= 0.25))
    ax = plot.pit(pit, bins=4)
    heights = [bar.get_height() for bar in ax.patches[:4]]
    assert heights == np.histogram(pit, 4, (0, 1))[0].tolist()
    with pytest.raises(ValueError, match="needs X and y"):
        plot.pit(model)
    with pytest.raises(ValueError, match="alone"):
        plot.calibration(pit, X, y)


def test_decomposition_over_x_and_row_by_row():
    model, X, _ = one_input()
    ax = plot.decomposition(model, X, grid=7, unit="s")
    total, aleatoric, epistemic = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(total, aleatoric + epistemic, rtol=1e-5)
    assert ax.get_ylabel() == "CRPS uncertainty of y (s)"
    parts = model.decompose_uncertainty(X, "variance")
    drawn = plot.decomposition(parts, X).lines[1].get_ydata()
    np.testing.assert_allclose(drawn, np.sqrt(parts.aleatoric))  # x is sorted
    with pytest.raises(ValueError, match="59 rows and the decomposition 60"):
        plot.decomposition(parts, X[:59])
    model, X, _ = three_inputs()
    points = plot.decomposition(model, X).lines[0].get_xydata()
    parts = model.decompose_uncertainty(X)
    np.testing.assert_allclose(points[:, 1], parts.epistemic)


def test_latent_by_name_and_training_by_term():
    model, _, _ = three_inputs()
    assert plot.latent(model, feature="switch").get_xlabel() == "switch"
    ax = plot.training(model, term="kl_weights")
    chosen = ax.lines[-1 - len(plot_stages(model.history_))]
    values = np.asarray(model.history_["kl_weights"])[
        :, np.argmax(model.restart_scores_)
    ]
    np.testing.assert_allclose(chosen.get_ydata(), values)
    with pytest.raises(ValueError, match="'loss' must be one of"):
        plot.training(model, term="loss")
    with pytest.raises(ValueError, match="no history"):
        plot.training(SimpleNamespace(history_=None, **_chosen(model)))


def plot_stages(history):
    stages = np.asarray(history["stage"])
    return np.flatnonzero(stages[1:] != stages[:-1])


def _chosen(model):
    return {
        name: getattr(model, name)
        for name in ("restart_scores_", "posterior_", "score_name_")
    }
