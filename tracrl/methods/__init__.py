"""One file per algorithm: its settings, its losses, its update."""
