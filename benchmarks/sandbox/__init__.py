"""How fast trajectories are made, beside MiniWoB++'s own environment and BrowserGym."""
