"""Checks before a run spends anything: whether it could end well."""
