"""Our MiniWoB++ against BrowserGym's: the same pages, the same actions, rewards side by side."""
