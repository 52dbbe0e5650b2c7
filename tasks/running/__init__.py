"""Parts of a run: stages, the boundaries between them, and messages."""
