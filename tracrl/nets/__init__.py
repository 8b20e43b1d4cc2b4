"""Networks with a leading dimension of runs, and the random numbers that they draw."""
