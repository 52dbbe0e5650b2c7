"""What a run is made of while it runs: stages and the boundaries between them, and its messages."""
