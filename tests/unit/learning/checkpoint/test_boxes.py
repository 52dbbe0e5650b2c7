"""Boxes: flat ranges, overlaps, cuts, and who takes what."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.checkpoint.state import Box, Shared, cut, flat_boxes, flat_index, overlap, spread

shapes = st.lists(st.integers(1, 6), min_size=0, max_size=4).map(tuple)


@settings(deadline=None)
@given(shapes, st.data())
def test_a_flat_range_is_its_boxes_in_storage_order_and_they_are_few(shape: tuple[int, ...], data: st.DataObject):
    count = math.prod(shape)
    start = data.draw(st.integers(0, count))
    end = data.draw(st.integers(start, count))
    numbers = np.arange(count).reshape(shape)
    found = flat_boxes(shape, start, end)
    seen = [numbers[tuple(slice(o, o + n) for o, n in zip(*box, strict=True))].ravel() for box in found]
    assert np.concatenate([np.empty(0, int), *seen]).tolist() == list(range(start, end))
    assert len(found) <= max(1, 2 * len(shape) - 1)
    assert all(flat_index(shape, box.offsets) == part[0] for box, part in zip(found, seen, strict=True))


@settings(deadline=None)
@given(shapes.filter(bool), st.integers(1, 40))
def test_the_cuts_of_a_box_are_the_box_again_and_gapless(shape: tuple[int, ...], most: int):
    box = Box(tuple(range(3, 3 + len(shape))), shape)
    parts = cut(box, most)
    assert sum(part.numel for part in parts) == box.numel
    assert all(overlap(part, box) == part for part in parts)
    assert all(overlap(a, b) is None for i, a in enumerate(parts) for b in parts[:i])
    strides = [flat_index(shape, [o - z for o, z in zip(part.offsets, box.offsets, strict=True)]) for part in parts]
    assert strides == np.cumsum([0, *(part.numel for part in parts)])[:-1].tolist()


def test_boxes_that_only_touch_have_nothing_in_common():
    assert overlap(Box((0, 0), (2, 3)), Box((2, 0), (1, 3))) is None
    assert overlap(Box((0, 0), (3, 3)), Box((2, 1), (4, 1))) == Box((2, 1), (1, 1))
    assert overlap(Box((), ()), Box((), ())) == Box((), ())


def test_work_goes_to_the_least_loaded_of_those_who_can_take_it():
    both = (0, 1)
    assert spread([Shared(9, (0,)), Shared(4, both), Shared(4, both), Shared(1, both)], 2) == [0, 1, 1, 1]
    weights = [int(w) for w in np.random.default_rng(0).integers(1, 100, 400)]
    chosen = spread([Shared(weight, (0, 1, 2, 3)) for weight in weights], 4)
    loads = np.bincount(chosen, weights)
    assert loads.max() / loads.mean() <= 1.01


def test_holders_that_overlap_in_part_are_still_level():
    weights = np.random.default_rng(1).integers(1, 100, 400) * np.tile([1, 1, 2, 1], 100)
    items = [Shared(int(w), (at % 4, (at + 1) % 4)) for at, w in enumerate(weights)]
    chosen = spread(items, 4)
    assert all(owner in item.holders for owner, item in zip(chosen, items, strict=True))
    loads = np.bincount(chosen, [item.weight for item in items])
    assert loads.max() / loads.mean() <= 1.01
