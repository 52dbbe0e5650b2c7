"""Calls: the arguments of any grammar; actions written as Python, and the execution of a program of them."""
