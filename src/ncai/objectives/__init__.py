"""What is minimised: the ELBO, the log joint, and the penalties of NCAI."""
