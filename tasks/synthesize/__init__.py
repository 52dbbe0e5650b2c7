"""The stage `synthesize`, which makes new tasks."""
