"""Actions written as Python: the grammar of calls, and the execution of a program of them."""
