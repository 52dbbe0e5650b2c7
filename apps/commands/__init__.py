"""The commands: one module each, or a few that are one subject; `verbs` is what the command line shows of them."""
