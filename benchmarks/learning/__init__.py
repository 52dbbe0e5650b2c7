"""What the methods of reinforcement learning are worth: `python -m benchmarks.learning NAME`."""
