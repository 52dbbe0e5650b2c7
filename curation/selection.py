"""Select the steps of an accepted trajectory to imitate: the shortest path through its screens.

A random explorer takes detours. If a later screen equals an earlier one pixel by pixel, the steps in between are a
detour, which is removed from targets and history. An action that changed nothing is a detour of one step; UI-TARS's
rule filter drops such actions, too. The last step is always kept, since the verifier rewarded it.
"""

from collections.abc import Sequence


def shortest_way(screens: Sequence[str]) -> list[int]:
    """Return the indices of the kept steps.

    Args:
        screens: hashes of the screens before each of the n steps.

    Returns:
        Increasing indices in [0, n), ending with n - 1; following them leads from the first screen to the end.
    """
    last_seen = {screen: position for position, screen in enumerate(screens)}
    kept: list[int] = []
    position = 0
    while position < len(screens):
        position = last_seen[screens[position]]
        kept.append(position)
        position += 1
    return kept
