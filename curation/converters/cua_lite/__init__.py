"""Reads and writes the samples of cua-lite (`LiteSample`) and their layouts."""
