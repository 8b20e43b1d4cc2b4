"""Policies in their simulators, and what their episodes score."""
