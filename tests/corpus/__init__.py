"""Hundreds of ways to use tracrl wrongly, and what it must answer: ``python -m tests.corpus`` prints a summary."""
