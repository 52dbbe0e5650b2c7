"""Reads and writes trajectories in formats of other projects, without a lake."""
