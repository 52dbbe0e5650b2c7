"""Measure methods of learning: `python -m benchmarks.learning NAME`."""
