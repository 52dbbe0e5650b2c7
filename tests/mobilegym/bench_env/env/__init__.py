"""The phone, as tasks see it."""
