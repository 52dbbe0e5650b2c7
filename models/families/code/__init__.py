"""Reads calls: the arguments of any grammar, and programs of actions in Python."""
