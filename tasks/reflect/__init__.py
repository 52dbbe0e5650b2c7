"""The stage `reflect`, which corrects failed trajectories."""
