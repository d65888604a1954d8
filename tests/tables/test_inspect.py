"""Sentences on a fitted model."""

from ncai.tables.inspect import cut_short


def test_only_a_cut_of_the_training_itself_is_told():
    trial = "trial marginal: time limit after 9 steps"
    assert cut_short([trial, "marginal: plateau after 100 steps"], 109) is None
    assert cut_short(["elbo: step limit after 100 steps"], 100) is None
    assert "short, after 9 steps:" in cut_short([trial], 9)
    assert "short, after 40 draws:" in cut_short(["hmc: time limit after 40 draws"], 9)
    assert "nothing was learned" in cut_short([], 0)
    assert cut_short([], None) is None  # a file that does not say
