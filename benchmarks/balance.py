"""Compare the balance of every phase of a training step with its peers: a cost model, no step is run.

Ranks are virtual. Every arm gets the same samples and the same costs: operations of a 7B language model with a 0.67B
vision encoder, per sequence linear and quadratic. A step lasts as long as the slowest rank of each phase in turn;
communication is left out. Arms: no balance; the language model's work alone (longest first); verl's rule
(Karmarkar-Karp, equal counts, on the language model's work); VeOmni's rule (the encoder's work alone, outputs return);
ours, each phase by itself. All ratios are predictions, not measured throughput.

Samples: a mix of GUI trajectories; three modalities; and those of a lake (`--lake PATH`, else a small one that the
explorer makes in the fake sandbox), drawn with replacement. A lake gives its steps as the trainer takes them, and its
whole trajectories. With screens of one size no plan can level those: see `least possible`.
"""

import argparse
import heapq
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bar, add_options, finish
from learning.planning.balance import BalanceCost, Ints, loads, longest_first, near_holders
from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tests.fixtures.lake import make_small_lake

LANGUAGE = BalanceCost(linear=456_000, quadratic=6)
"""Per token and token^2, in 10^5 operations of forward and backward: 6 x 7.6e9, and 12 x 28 layers x 3,584 / 2."""
ENCODER = BalanceCost(linear=40_200, quadratic=1)
"""Per patch and patch^2: 6 x 0.67e9, and 12 x 1,280 x 4 layers of full attention (the others see windows)."""
SMALL = BalanceCost(linear=180_000, quadratic=4)
"""A language model of 3B: 6 x 3e9, and 12 x 36 layers x 2,048 / 2."""
AUDIO = BalanceCost(linear=38_000, quadratic=5)
"""Per frame and frame^2: 6 x 0.64e9, and 12 x 32 layers x 1,280."""
PER_NODE = 8


PATCH, MERGE = 14, 2
"""Pixels of a patch, and patches of a token's side: Qwen2.5-VL's."""
BYTES_A_TOKEN = 4
"""What a byte-pair vocabulary of that family takes for English and for actions, about."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Lengths of one training sample."""

    patches: int
    """Of one screen."""
    screens: int
    text: int
    """Tokens of instruction, history and reply."""

    @property
    def tokens(self) -> int:
        """What the language model reads."""
        return self.screens * self.patches // MERGE**2 + self.text


def step_samples(lake: Lake, history_images: int) -> list[Sample]:
    """One sample per step, as the trainer makes them: the last screens, all past replies as text, the step's reply."""
    samples: list[Sample] = []
    for instruction, steps in _trajectories(lake):
        tokens = _tokens(instruction)
        for number, step in enumerate(steps):
            tokens += _tokens(step["thought"] or "") + sum(map(_tokens, step["actions"]))
            samples.append(Sample(_patches(step), min(number + 1, history_images), tokens))
    return samples


def trajectory_samples(lake: Lake) -> list[Sample]:
    """One sample per trajectory with all of its screens, as long-context training would take it."""
    return [
        Sample(
            _patches(steps[0]),
            len(steps),
            _tokens(instruction)
            + sum(_tokens(step["thought"] or "") + sum(map(_tokens, step["actions"])) for step in steps),
        )
        for instruction, steps in _trajectories(lake)
    ]


def columns(samples: list[Sample]) -> tuple[Ints, Ints, Ints]:
    """Patches of a screen, screens, and language tokens of every sample."""
    found = [(sample.patches, sample.screens, sample.tokens) for sample in samples]
    patches, screens, tokens = np.array(found, dtype=np.int64).T
    return patches, screens, tokens


def _trajectories(lake: Lake) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    rows = lake.read("trajectories", ["trajectory_id", "instruction"]).to_pylist()
    wanted = ["trajectory_id", "step", "screen_width", "screen_height", "thought", "actions"]
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in lake.read("steps", wanted).to_pylist():
        steps.setdefault(row["trajectory_id"], []).append(row)
    for row in sorted(rows, key=lambda row: row["trajectory_id"]):
        if row["trajectory_id"] in steps:
            yield row["instruction"], sorted(steps[row["trajectory_id"]], key=lambda step: step["step"])


def _patches(step: dict[str, Any]) -> int:
    block = PATCH * MERGE
    return -(-step["screen_height"] // block) * -(-step["screen_width"] // block) * MERGE**2


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_A_TOKEN)


@dataclass(frozen=True, slots=True)
class Mix:
    """Costs of samples by phase, the language model's last, and their bytes between phases."""

    name: str
    costs: dict[str, Ints]
    tokens: Ints
    embeddings: Ints


def gui_mix(count: int, draw: np.random.Generator, cap: int = 32_768, most_screens: int = 10) -> Mix:
    """Trajectories as a GUI policy trains on: a third are one-screen grounding, the rest have a heavy tail."""
    steps = np.where(draw.random(count) < 0.35, 1, np.exp(draw.normal(2.0, 0.8, count)).astype(int) + 1)
    screens = np.minimum(steps, most_screens)
    per_screen = draw.choice([256, 640, 1_280, 2_691], size=count, p=[0.1, 0.3, 0.4, 0.2])
    text = 150 + steps * draw.integers(40, 200, count)
    screens = np.maximum(1, np.minimum(screens, (cap - np.minimum(text, cap // 2)) // per_screen))
    text = np.minimum(text, cap // 2)
    tokens = screens * per_screen + text
    encoder = screens * ENCODER.of(4 * per_screen)
    return Mix("GUI mix", {"encoder": encoder, "language": LANGUAGE.of(tokens)}, tokens, screens * per_screen)


def three_modalities(count: int, draw: np.random.Generator) -> Mix:
    """Images, audio and text whose shares of a sample say nothing about each other; a 3B language model."""
    images = np.where(draw.random(count) < 0.5, np.exp(draw.normal(8.3, 0.8, count)), 0).astype(np.int64)
    audio = np.where(draw.random(count) < 0.4, np.exp(draw.normal(8.3, 0.8, count)), 0).astype(np.int64)
    images, audio = np.minimum(images, 16_384), np.minimum(audio, 16_384)
    text = np.minimum(np.exp(draw.normal(6.5, 0.8, count)).astype(np.int64), 4_096)
    tokens = text + images // 4 + audio // 8
    costs = {"image": ENCODER.of(images), "audio": AUDIO.of(audio), "language": SMALL.of(tokens)}
    return Mix("three modalities", costs, tokens, (images + audio) // 4)


def lake_mix(name: str, samples: list[Sample], count: int, draw: np.random.Generator) -> Mix:
    """Samples of a lake, drawn with replacement."""
    drawn = draw.integers(0, len(samples), count)
    patches, screens, tokens = (column[drawn] for column in columns(samples))
    costs = {"encoder": screens * ENCODER.of(patches), "language": LANGUAGE.of(tokens)}
    return Mix(name, costs, tokens, screens * patches // 4)


def karmarkar_karp(work: Ints, ranks: int) -> Ints:
    """The largest differencing method with equal counts: verl's rule; (n,) ranks, n a multiple of `ranks`."""
    order = np.argsort(work, kind="stable")
    heap: list[tuple[int, int, Ints, list[list[int]]]] = []
    for number, start in enumerate(range(0, len(order), ranks)):
        members = order[start : start + ranks][::-1]
        sums = work[members]
        heap.append((-int(sums[0] - sums[-1]), number, sums, [[int(one)] for one in members]))
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        _, _, first, with_first = heapq.heappop(heap)
        _, _, second, with_second = heapq.heappop(heap)
        sums = first + second[::-1]
        joined = [one + other for one, other in zip(with_first, reversed(with_second), strict=True)]
        falling = np.argsort(-sums, kind="stable")
        sums = sums[falling]
        heapq.heappush(heap, (-int(sums[0] - sums[-1]), number, sums, [joined[place] for place in falling]))
        number += 1
    plan = np.empty(len(work), dtype=np.int64)
    for rank, members in enumerate(heap[0][3]):
        plan[members] = rank
    return plan


def compare(mix: Mix, ranks: int) -> dict[str, float]:
    """Step cost of every arm over the ideal (all ranks equal in every phase), and what ours took to plan."""
    costs = list(mix.costs.values())
    language = costs[-1]
    held = np.arange(len(language)) % ranks
    started = time.perf_counter()
    ours = [longest_first(cost, ranks) for cost in costs]
    planned = time.perf_counter() - started
    one = longest_first(language, ranks)
    even = karmarkar_karp(language, ranks)
    arms = {
        "none": [held] * len(costs),
        "language only": [one] * len(costs),
        "Karmarkar-Karp": [even] * len(costs),
        "encoder only": [longest_first(costs[0], ranks)] + [held] * (len(costs) - 1),
        "ours": ours,
    }
    ideal = sum(int(cost.sum()) / ranks for cost in costs)
    paired = {name: zip(costs, plans, strict=True) for name, plans in arms.items()}
    found = {name: sum(loads(*one, ranks).max() for one in each) / ideal for name, each in paired.items()}
    return {**found, "least possible": sum(map(least, costs, [ranks] * len(costs))) / ideal, "plan ms": 1000 * planned}


def least(cost: Ints, ranks: int) -> int:
    """What the slowest rank of a phase has at least: the dearest sample, or an even share in whole units of cost."""
    unit = max(1, int(np.gcd.reduce(cost)))
    return max(int(cost.max()), unit * -(-int(cost.sum()) // (unit * ranks)))


def exchanged(mix: Mix, ranks: int) -> tuple[float, float, float]:
    """Share of the bytes that leave their node before and after ranks are renamed, and the seconds that took."""
    held = np.arange(len(mix.tokens)) % ranks
    plan = longest_first(list(mix.costs.values())[-1], ranks)
    started = time.perf_counter()
    renamed = near_holders(held, plan, mix.embeddings, ranks, PER_NODE)
    seconds = time.perf_counter() - started

    def leaving(ranked: Ints) -> float:
        away = ranked // PER_NODE != held // PER_NODE
        return float(mix.embeddings[away].sum() / mix.embeddings.sum())

    return leaving(plan), leaving(renamed), seconds


def lake_makers(uri: str | None, history_images: int) -> list[Callable[[int, np.random.Generator], Mix]]:
    """Mixes of a lake's steps and of its trajectories."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake.open(LakeConfig(uri=uri), create=False) if uri else make_small_lake(Path(folder) / "lake")
        steps, whole = step_samples(lake, history_images), trajectory_samples(lake)
    whose = Path(uri).name if uri else "a small lake"
    names = (f"{whose}: {len(steps)} steps", f"{whose}: {len(whole)} trajectories")
    return [
        lambda count, draw, name=name, samples=samples: lake_mix(name, samples, count, draw)
        for name, samples in zip(names, (steps, whole), strict=True)
    ]


def measured(
    makers: Sequence[Callable[[int, np.random.Generator], Mix]], sizes: Sequence[tuple[int, int]], repeats: int
) -> list[dict[str, Any]]:
    """One row per mix and size: every arm over the ideal, the mean over draws."""
    rows = []
    for make in makers:
        for ranks, each in sizes:
            runs = [compare(make(ranks * each, np.random.default_rng(seed)), ranks) for seed in range(repeats)]
            found = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
            rows.append({"samples": make(1, np.random.default_rng(0)).name, "ranks": ranks, "per rank": each, **found})
    return rows


def main() -> int:
    """Prints the tables; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", metavar="PATH", help="a lake whose own lengths are drawn from")
    parser.add_argument("--history-images", type=int, default=1, help="screens of a lake's step: policy.history_images")
    chosen = add_options(parser).parse_args()
    sizes = [(64, 8), (2_560, 8)] if chosen.short else [(8, 8), (64, 8), (512, 8), (2_560, 4), (2_560, 8), (2_560, 16)]
    repeats = 3 if chosen.short else 8
    rows = measured([gui_mix, three_modalities], sizes, repeats)
    own = measured(lake_makers(chosen.lake, chosen.history_images), [(2_560, 8)], repeats)
    mix = gui_mix(40_960, np.random.default_rng(0))
    before, after, seconds = exchanged(mix, 2_560)
    started = time.perf_counter()
    for cost in mix.costs.values():
        longest_first(cost, 2_560)
    planned = 1000 * (time.perf_counter() - started)
    nodes = {
        "ranks": 2_560,
        "ranks a node": PER_NODE,
        "bytes leaving their node": before,
        "after renaming": after,
        "renamed in s": seconds,
    }
    big = {row["samples"]: row for row in rows if (row["ranks"], row["per rank"]) == (2_560, 8)}
    gui, three = big["GUI mix"], big["three modalities"]
    bars = [
        Bar("GUI mix, 2,560 ranks x 8: ours / ideal", gui["ours"], 1.01, "lower"),
        Bar("GUI mix: none / ours", gui["none"] / gui["ours"], 2.4, "higher"),
        Bar("GUI mix: encoder only / ours", gui["encoder only"] / gui["ours"], 2.1, "higher"),
        Bar("GUI mix: Karmarkar-Karp / ours", gui["Karmarkar-Karp"] / gui["ours"], 1.02, "higher"),
        Bar("three modalities: Karmarkar-Karp / ours", three["Karmarkar-Karp"] / three["ours"], 1.3, "higher"),
        Bar(f"{own[0]['samples']}, 2,560 ranks x 8: ours / ideal", own[0]["ours"], 1.01, "lower"),
        Bar("40,960 samples, two phases: planning ms", planned, 150.0, "lower"),
    ]
    return finish("balance", [*rows, *own, nodes], bars, chosen, [[*rows, *own], [nodes]])


if __name__ == "__main__":
    raise SystemExit(main())
