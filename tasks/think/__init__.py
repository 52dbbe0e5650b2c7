"""The stage that writes the thoughts of steps."""
