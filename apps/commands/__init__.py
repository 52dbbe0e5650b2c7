"""Implement the commands, with one module for each or for a few related ones; `verbs` lists the command line's
verbs."""
