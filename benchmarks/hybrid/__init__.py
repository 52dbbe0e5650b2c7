"""The hybrid sandbox measured: `python -m benchmarks.hybrid`."""
