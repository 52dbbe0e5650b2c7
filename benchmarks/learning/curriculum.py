"""The curriculum against uniform sampling: trajectories needed to reach the success that uniform sampling ends with.

Both arms start from nothing and differ in `curriculum.method` alone: the same plays per iteration, the same training.
Success is that of the policy which reigns after an iteration, greedy on validation seeds that both arms share. An arm
has reached a success in the first iteration at which its mean over plays is that high; nothing is interpolated. It runs
on the fake sandbox with a small network and ten tasks, of which five are a single button and are soon saturated (of the
default suite about half are after four iterations) and three take several steps, with a curriculum that stays with
what can be learned now more than the default one does (`curriculum.floor`, `curriculum.most_shown`);
`environment.kind=miniwob` turns the config's own suite instead, which takes many hours.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._arms import Arm, root_of
from benchmarks._report import Bar, finish
from benchmarks.learning._figure import save_points
from benchmarks.learning._start import NETWORK

SHARE = 0.5
ARMS = {"curriculum": "curriculum.method=learnable", "uniform": "curriculum.method=uniform"}
MINIWOB = "environment.kind=miniwob"
FAKE = (
    *NETWORK,
    'suite.tasks=["click-one","click-red","click-green","click-blue","click-orange","click-target","click-of-three",'
    '"two-steps","three-steps","enter-text"]',
    "curriculum.floor=0.1",
    "curriculum.most_shown=1",
    "collect.trajectories_per_task=8",
    "train.steps_first=450",
    "train.steps=150",
    "evaluate.seeds=20",
)
RESAMPLES = 10_000
Curve = Sequence[tuple[int, float]]
"""Trajectories played so far and the reigning policy's success, iteration by iteration."""


def run(options: argparse.Namespace) -> int:
    """Turns both arms of every training seed and prints the table."""
    words = tuple(options.words) if MINIWOB in options.words else (*FAKE, *options.words)
    laps = options.start + options.iterations
    curves: dict[str, dict[int, Curve]] = {name: {} for name in ARMS}
    for seed in range(options.seeds):
        for name, word in ARMS.items():
            curves[name][seed] = curve_of(_turned(options, words, name, word, seed, laps))
    found = [_needed(curves, seed) for seed in range(options.seeds)]
    ratio, low, high = share_needed([(row["curriculum"], row["uniform"]) for row in found])
    over_all = {"seed": "all", "target": None, "curriculum": None, "uniform": None, "share": ratio}
    found.append({**over_all, "95 %": f"{low:.2f} to {high:.2f}", "low": low, "high": high})
    rows = [
        {"arm": name, "seed": seed, "iteration": lap, "trajectories": played, "success": success}
        for name, by_seed in curves.items()
        for seed, curve in by_seed.items()
        for lap, (played, success) in enumerate(curve)
    ]
    if options.figure:
        save_points(_points(curves), options.figure, "trajectories", "arm", "Success by trajectories played")
    bar = Bar("trajectories to uniform's last success, curriculum over uniform", ratio, SHARE, "lower")
    return finish("curriculum", [*rows, *found], [bar], options.json, [found, rows])


def curve_of(laps: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """The reigning policy's success after each iteration, against all trajectories so far; 0 while none was trained."""
    played, success, curve = 0, 0.0, []
    for lap in laps:
        played += lap["trajectories"]
        if lap["promoted"] and lap["success"] is not None:
            success = lap["success"]
        curve.append((played, success))
    return curve


def reached(curve: Curve, success: float) -> float:
    """Trajectories played when a curve first is that high; infinite if it never is."""
    return next((float(played) for played, now in curve if now >= success), math.inf)


def share_needed(pairs: Sequence[tuple[float, float]], seed: int = 0) -> tuple[float, float, float]:
    """Trajectories of the first over the second, summed over training seeds, with the 95 % interval of resampled seeds.

    A training seed in which the first never gets there makes the ratio infinite.
    """
    ours, theirs = (np.array(column) for column in zip(*pairs, strict=True))
    drawn = np.random.default_rng(seed).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    ratios = ours[drawn].sum(axis=1) / theirs[drawn].sum(axis=1)
    low, high = (float(np.quantile(ratios, end, method="nearest")) for end in (0.025, 0.975))
    return float(ours.sum() / theirs.sum()), low, high


def _turned(
    options: argparse.Namespace, words: tuple[str, ...], name: str, word: str, seed: int, laps: int
) -> list[dict[str, Any]]:
    root = root_of(options.config, words)
    folder = root.parents[1] / "learning" / root.name / f"{name}-{seed}"
    own = (*words, word, f"lake.uri={folder}/lake", f"seed={seed}")
    arm = Arm(name, seed, options.config, folder, own)
    arm.turn(laps)
    return [lap for lap in arm.iterations() if 0 <= lap["iteration"] < laps]


def _needed(curves: Mapping[str, Mapping[int, Curve]], seed: int) -> dict[str, Any]:
    target = curves["uniform"][seed][-1][1]
    needed = {name: reached(curves[name][seed], target) for name in ARMS}
    return {"seed": seed, "target": target, **needed, "share": needed["curriculum"] / needed["uniform"], "95 %": ""}


def _points(curves: Mapping[str, Mapping[int, Curve]]) -> list[dict[str, Any]]:
    """The mean over training seeds after each iteration, with its 95 % interval (normal, over seeds)."""
    points = []
    for name, by_seed in curves.items():
        for laps in zip(*by_seed.values(), strict=True):
            values = [success for _, success in laps]
            half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
            mean = float(np.mean(values))
            played = float(np.mean([count for count, _ in laps]))
            points.append({"arm": name, "trajectories": played, "mean": mean, "low": mean - half, "high": mean + half})
    return points
