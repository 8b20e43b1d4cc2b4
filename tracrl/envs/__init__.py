"""What is acted in: the 38 tasks in their simulators, and any Gymnasium environment that reports a cost."""
