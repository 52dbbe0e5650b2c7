"""What a run is made of while it runs: stages and the boundaries between them, what is said and told of it."""
