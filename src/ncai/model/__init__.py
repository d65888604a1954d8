"""The Bayesian neural network with latent variables: network, priors, quadrature."""
