"""The report: one self-contained page about one lake."""
