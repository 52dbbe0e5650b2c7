"""ATIF, Harbor's format of trajectories, and the computer tools of agents that write it."""
