"""Stand in for AndroidWorld: the functions that the worker uses, with tasks of our own on a phone with three lamps."""
