"""Implement the review desk: a web page to review, label and correct trajectories, and to act in live sessions."""
