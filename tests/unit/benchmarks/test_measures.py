"""Quantities that benchmarks compute from what they measured."""

import numpy as np

from benchmarks.checkpoint.__main__ import ettr
from benchmarks.sandbox.rounds import drawn_evenly
from benchmarks.sequence_plan import bucket_row


def test_the_share_of_effective_training_follows_the_formula() -> None:
    assert ettr(interval=100.0, save=10.0, load=5.0) == 100.0 / (100.0 + 55.0 + 5.0)


def test_buckets_of_the_programme_round_up_less_than_buckets_of_equal_width() -> None:
    row = bucket_row([np.array([128, 128, 256, 4_096, 90_000])], number=2)
    assert row["rounded up"] == (2 * (4_096 - 128) + (4_096 - 256)) / 94_608
    assert row["equal width, rounded up"] > row["rounded up"]


def test_every_round_of_the_sandbox_plays_short_and_long_trajectories() -> None:
    lengths = {seed: 1 + seed % 10 for seed in range(64)}
    rounds = drawn_evenly(lengths, 5)
    assert len({seed for seeds in rounds for seed in seeds}) == 20
    for seeds in rounds:
        first, second, third, last = (lengths[seed] for seed in seeds)
        assert first <= 3 <= second <= 5 <= third <= 8 <= last
