"""Measure how fast trajectories are made, compared with MiniWoB++'s own environment and BrowserGym."""
