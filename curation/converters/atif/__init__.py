"""Reads and writes ATIF, Harbor's format of trajectories, and reads the computer tools of agents that write it."""
