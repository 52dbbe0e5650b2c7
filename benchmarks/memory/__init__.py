"""The memory of a training, by recipe: `python -m benchmarks.memory`."""
