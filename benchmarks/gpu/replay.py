"""Replay a step of many ranks on one GPU: the share of every virtual rank in each phase, one after the other.

A step lasts as long as the slowest rank of each phase in turn: the times are measured and the step is their sum;
communication is left out. Arms: no balance; verl's rule (Karmarkar-Karp, equal counts, the language model's work);
VeOmni's rule (the encoder's work alone); ours, each phase by itself. `--device cpu`: a tiny setting, to try it.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.balance import karmarkar_karp
from benchmarks.gpu._device import Row, device_name, language_pass, milliseconds, random_model, run, vision_pass
from benchmarks.harness import Bar
from learning.engines.fsdp.costs import shape_of
from learning.planning.balance import Ints, longest_first

RANKS = {"cuda": 16, "cpu": 2}
EACH = 8
LONGEST = {"cuda": 8192, "cpu": 128}


def samples(count: int, longest: int, seed: int) -> tuple[Ints, list[list[int]]]:
    """Tokens of samples, and the patches of their screens: a third one screen, the rest with a heavy tail."""
    draw = np.random.default_rng(seed)
    unit = max(4, longest // 128)
    screens = np.where(
        draw.random(count) < 0.35, 1, np.minimum(10, np.exp(draw.normal(1.2, 0.8, count)).astype(int) + 1)
    )
    sizes = 4 * unit * draw.choice([1, 2, 4], count)
    text = np.exp(draw.normal(np.log(4 * unit), 0.8, count)).astype(int) + 8
    tokens = np.minimum(text + screens * sizes // 4, longest)
    return tokens.astype(np.int64), [[int(size)] * int(shown) for size, shown in zip(sizes, screens, strict=True)]


def makespan(model: Any, plans: tuple[Ints, Ints], tokens: Ints, screens: list[list[int]], ranks: int) -> float:
    """Measured milliseconds of the slowest rank of each phase, added."""
    vision, language = plans
    spans = [0.0, 0.0]
    for rank in range(ranks):
        patches = [size for sample in np.flatnonzero(vision == rank) for size in screens[sample]]
        lengths = [int(tokens[sample]) for sample in np.flatnonzero(language == rank)]
        if patches:
            spans[0] = max(spans[0], milliseconds(model, vision_pass(model, patches), 2))
        if lengths:
            spans[1] = max(spans[1], milliseconds(model, language_pass(model, lengths), 2))
    return sum(spans)


def measure(options: argparse.Namespace) -> tuple[list[Row], list[Bar]]:
    """Return the rows and the bars."""
    ranks = RANKS[options.device] if options.short else 2 * RANKS[options.device]
    tokens, screens = samples(ranks * EACH, LONGEST[options.device], 0)
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(options.device, Path(folder))
        shape = shape_of(model)
        seen = np.array([int(shape.vision.of(sizes).sum()) for sizes in screens], dtype=np.int64)
        read = shape.language.of(tokens)
        held = np.arange(len(tokens)) % ranks
        even = karmarkar_karp(read, ranks)
        ours = (longest_first(seen, ranks), longest_first(read, ranks))
        arms = {
            "none": (held, held),
            "Karmarkar-Karp": (even, even),
            "encoder only": (longest_first(seen, ranks), held),
            "ours": ours,
        }
        found = {name: makespan(model, plans, tokens, screens, ranks) for name, plans in arms.items()}
    about = {"device": device_name(options.device), "virtual_ranks": ranks, "each": EACH}
    rows = [
        {**about, "arm": name, "step_ms": taken, "over_ours": taken / found["ours"]} for name, taken in found.items()
    ]
    bars = list[Bar]()
    if options.device == "cuda":
        bars = [
            Bar(f"{name} / ours, replayed", found[name] / found["ours"], 1.0, "higher")
            for name in found
            if name != "ours"
        ]
    return rows, bars


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", measure))
