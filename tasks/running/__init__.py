"""Parts of a run: stages, boundaries between stages, and messages."""
