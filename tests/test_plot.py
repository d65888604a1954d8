"""Pictures: what is drawn where, without looking at pixels."""

from types import SimpleNamespace

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from ncai import plot
from ncai.datasets import make_dataset
from ncai.fitting import Rows
from ncai.latent_inference import LatentPosterior


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

        def interval(self, level):
            return self.x - level, self.x + level

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
        model, data.train.inputs, data.train.targets, axes[1], level=0.9, grid=(9, 7)
    )
    assert used is axes[1]
    points, mean, lower, upper = (line.get_xydata() for line in used.lines)
    np.testing.assert_array_equal(points[:, 0], data.train.inputs[:, 0])
    np.testing.assert_allclose(mean[:, 0], mean[:, 1])
    np.testing.assert_allclose(upper[:, 1] - lower[:, 1], 1.8)
    model.n_features_in_ = 3
    with pytest.raises(ValueError, match="3 inputs"):
        plot.density(model, data.train.inputs, data.train.targets)


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
