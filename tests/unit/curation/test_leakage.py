"""A held-out task that ends on a trained task's screens is found; other pictures are not."""

import random

from curation.pictures import BITS
from tasks.promote.promote import Leak, same_screens


def screen(seed: int, flipped: int = 0) -> str:
    bits = random.Random(seed).getrandbits(BITS)
    for place in range(flipped):
        bits ^= 1 << place
    return f"{bits:0{BITS // 4}x}"


def test_a_task_whose_last_screens_are_those_of_a_trained_one_is_named_with_it() -> None:
    held = {"held": [screen(1), screen(2), screen(3)]}
    trained = [("copied", screen(1, 5)), ("copied", screen(2)), ("other", screen(3)), ("other", screen(9))]
    assert same_screens(held, trained, 0.5) == [Leak("held", "copied", 2, 3)]


def test_other_screens_and_hashes_of_another_kind_are_no_copies() -> None:
    assert same_screens({"held": [screen(1)]}, [("a", screen(1, 9)), ("b", screen(4)), ("c", "0" * 16)], 0.5) == []
    assert same_screens({"held": ["0" * 16]}, [("c", "0" * 16)], 0.5) == []
    blank = "0" * (BITS // 4)
    assert same_screens({"held": [blank]}, [("c", blank)], 0.5) == []
