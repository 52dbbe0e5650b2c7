"""How often Python looks for cycles of garbage: seldom, where hundreds of thousands of objects are imported and stay.

With Python's own numbers (700 new objects) a process that imports Prefect, Great Expectations or torch goes through its
heap some thousand times before it has done anything: a quarter of the seconds that each takes to start.
"""

import gc

NEW = 50_000
"""New objects after which the young ones are looked through: ten megabytes or so."""


def look_seldom() -> None:
    """Does so from now on."""
    gc.set_threshold(NEW, *gc.get_threshold()[1:])
