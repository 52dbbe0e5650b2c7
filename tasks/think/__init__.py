"""The stage `think`, which adds thoughts to steps."""
