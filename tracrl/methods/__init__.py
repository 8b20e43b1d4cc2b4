"""One file an algorithm: its settings, its losses, its update."""
