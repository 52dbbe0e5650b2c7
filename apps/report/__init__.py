"""Build the report: one self-contained page about one lake."""
