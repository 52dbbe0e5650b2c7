"""Measure challengers against the champion, promote or reject them, and roll back."""
