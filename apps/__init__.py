"""Implement the user interfaces: the command line, the report, the review desk."""

from common.process import collect_garbage_seldom

collect_garbage_seldom()
