"""The stage that makes new tasks."""
