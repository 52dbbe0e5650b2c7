"""Who reigns: challengers measured against the champion, decisions with their numbers, and the way back."""
