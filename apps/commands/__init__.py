"""Implement the commands, one module each or for a few related ones; `verbs` lists those of the command line."""
