"""Drift is a shift that is large and that chance does not explain."""

import random
from collections import Counter
from math import isclose, log

import pytest

from curation.drift import chance, drift, psi


def test_the_index_is_the_textbook_s() -> None:
    now, before = [3000, 7000], [5000, 5000]
    expected = (0.3 - 0.5) * log(0.3 / 0.5) + (0.7 - 0.5) * log(0.7 / 0.5)
    assert isclose(psi(now, before), expected, rel_tol=1e-3)
    assert psi(now, now) == 0.0


@pytest.mark.parametrize(("n", "m"), [(40, 200), (500, 500)])
def test_the_same_population_is_beyond_chance_about_once_in_a_thousand(n: int, m: int) -> None:
    rng, shares = random.Random(0), [0.4, 0.3, 0.2, 0.1]
    draw = lambda size: Counter(rng.choices("abcd", shares, k=size))  # noqa: E731
    found = [drift(draw(n), draw(m)) for _ in range(3000)]
    assert sum(one is not None and one.beyond(0.0) for one in found) <= 12


def test_a_shift_is_named_by_what_moved() -> None:
    found = drift({"click": 90, "type": 10}, {"click": 500, "type": 450, "scroll": 50})
    assert found is not None and found.beyond(0.25)
    assert found.moved[0] == "click 50 % to 90 %" and len(found.moved) == 3


def test_nothing_is_no_drift() -> None:
    assert drift({}, {"a": 3}) is None and drift({"a": 3}, {"a": 0}) is None
    one = drift({"a": 5}, {"a": 9})
    assert one is not None and not one.beyond(0.0) and chance(1, 5, 9) == 0.0
