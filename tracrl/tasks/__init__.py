"""The 38 tasks as a table of facts, and their simulators as plain Gymnasium environments."""
