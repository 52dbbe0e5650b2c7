"""Implement the user interfaces: the command line, the report, the review desk."""

from schemas.heap import look_seldom

look_seldom()
