"""Checks of a run before it uses any budget."""
