"""Episodes: the container, its files, and the desirable and undesirable sets in it."""
