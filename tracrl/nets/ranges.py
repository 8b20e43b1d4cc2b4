"""How far networks' outputs may go, in training and in acting alike. Without torch: policies import this too."""

LATENT_RANGE = 0.5
"""candidates are decoded from the middle of the prior, where the data are dense (BCQ, appendix)"""
LOG_STD_RANGE = (-20.0, 2.0)
"""of squashed Gaussian actors"""
