"""Detect held-out data in training: shared seeds, and screens of both sides that are the same picture."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from curation.pictures import bits_of

NEAR = 8
"""Maximum number of differing bits, of 512, between hashes of one picture: noise or a cursor flips so many. No two of
16 tasks of MiniWoB++ ended on screens that near."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A held-out task that ends like trained trajectories of another task."""

    held_out: str
    trained: str
    screens: int
    """Number of the held-out task's last screens that the other task shares."""
    of: int


def same_screens(held_out: Mapping[str, Iterable[str]], trained: Iterable[tuple[str, str]], share: float) -> list[Leak]:
    """Return held-out tasks that share at least a given part of their distinct last screens with one trained task.

    Args:
        held_out: difference hashes of last screens by task.
        trained: task and hash of last screens that were trained on.
        share: of the held-out task's distinct screens, in (0, 1].
    """
    known = {task: {bits for one in hashes if (bits := _telling(one)) is not None} for task, hashes in held_out.items()}
    near: dict[tuple[str, str], set[int]] = {}
    for task, phash in trained:
        if (bits := _telling(phash)) is None:
            continue
        for own, screens in known.items():
            for screen in screens:
                if (screen ^ bits).bit_count() <= NEAR:
                    near.setdefault((own, task), set()).add(screen)
    return [
        Leak(own, task, len(found), len(known[own]))
        for (own, task), found in sorted(near.items())
        if len(found) >= share * len(known[own])
    ]


def _telling(phash: str) -> int | None:
    """Return the bits of a hash; None for one of another kind, and for a plain picture such as a blank page."""
    bits = bits_of(phash)
    return None if bits is None or bits.bit_count() <= NEAR else bits
