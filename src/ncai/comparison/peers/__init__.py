"""Other people's regressors behind one small interface, to compare with.

Each file wraps one library, imported when it is first used. A peer has a `name`, the
name of its `package`, and `fit(inputs, targets)`; then `predict(inputs)` gives
`Predictions` (see `ncai.predictive.simple`), as our own models do.
"""
