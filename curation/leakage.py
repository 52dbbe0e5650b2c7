"""Whether what is held out was seen in training: seeds that are both, and screens of both that are the same picture."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from curation.pictures import bits_of

NEAR = 8
"""Hashes that differ in at most so many of 512 bits are of one picture: what noise or a cursor flips. Of 16 tasks of
MiniWoB++ no two ever ended on screens that near."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A held-out task that ends as trained trajectories of another one did."""

    held_out: str
    trained: str
    screens: int
    """So many of the held-out task's last screens are in the other's."""
    of: int


def same_screens(held_out: Mapping[str, Iterable[str]], trained: Iterable[tuple[str, str]], share: float) -> list[Leak]:
    """Held-out tasks of whose distinct last screens at least a share is among those of one trained task.

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
    """The bits of a hash; None for one of another kind, and for a plain picture such as a blank page."""
    bits = bits_of(phash)
    return None if bits is None or bits.bit_count() <= NEAR else bits
