"""What acts: stacks of policies in plain NumPy, a file for each kind, saved as safetensors."""
