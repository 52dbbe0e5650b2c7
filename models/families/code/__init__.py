"""Actions written as Python: the grammar of calls, and what a program of them does."""
