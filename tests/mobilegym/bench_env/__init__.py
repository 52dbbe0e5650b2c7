"""Stand in for MobileGym's Python package: the classes that the worker uses, with three tasks of our own."""
