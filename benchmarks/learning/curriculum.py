"""The curriculum against uniform sampling: trajectories needed to reach the success that uniform sampling ends with.

Both arms start from nothing and differ in `curriculum.method` alone: the same plays per iteration, the same training.
Success is that of the policy which reigns after an iteration, greedy on test seeds that no choice has seen, the same
for all. The curriculum has reached uniform sampling in the first iteration at which its success, mean over training
seeds, is as high as uniform sampling's after the last one; nothing is interpolated. It runs on the fake sandbox with a
small network and ten tasks, of which five are a single button and are soon saturated (of the default suite about half
are after four iterations) and three take several steps. Iterations train long enough that what is short is data and not
steps, and the curriculum stays with what can be learned now more than the default one does (`curriculum.floor`,
`curriculum.most_shown`, `curriculum.saturated`). `environments.miniwob={}` turns the config's own suite instead, which
takes many hours.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._arms import Arm, root_of
from benchmarks._report import Bar, finish
from benchmarks.learning._figure import save_curves
from benchmarks.learning._start import NETWORK
from schemas.config import load_config

SHARE = 0.5
ARMS = {"curriculum": "curriculum.method=learnable", "uniform": "curriculum.method=uniform"}
MINIWOB = "environments.miniwob={}"
FAKE = (
    *NETWORK,
    'suite.tasks=["click-one","click-red","click-green","click-blue","click-orange","click-target","click-of-three",'
    '"two-steps","three-steps","enter-text"]',
    "curriculum.floor=0",
    "curriculum.most_shown=1",
    "curriculum.saturated=0.02",
    "collect.trajectories_per_task=8",
    "train.steps_first=600",
    "train.steps=300",
    "evaluate.seeds=20",
)
RESAMPLES = 10_000
Curve = Sequence[tuple[int, float]]
"""Trajectories played so far and the reigning policy's success, iteration by iteration."""
Pair = tuple[Curve, Curve]
"""The curriculum's curve and uniform sampling's, of one training seed."""


def run(options: argparse.Namespace) -> int:
    """Turns both arms of every training seed and prints the table."""
    words = tuple(options.words) if MINIWOB in options.words else (*FAKE, *options.words)
    laps = options.start + options.iterations
    curves: dict[str, dict[int, Curve]] = {name: {} for name in ARMS}
    for seed in range(options.seeds):
        for name, word in ARMS.items():
            curves[name][seed] = _curve(_arm(options, words, name, word, seed), laps, options.test_seeds)
    pairs = [(curves["curriculum"][seed], curves["uniform"][seed]) for seed in range(options.seeds)]
    found: list[dict[str, Any]] = [{"seed": seed, **needed([pair])} for seed, pair in enumerate(pairs)]
    low, high = interval(pairs)
    found.append({"seed": "all", **needed(pairs), "95 %": f"{low:.2f} to {high:.2f}", "low": low, "high": high})
    rows = [
        {"arm": name, "seed": seed, "iteration": lap, "trajectories": played, "success": success}
        for name, by_seed in curves.items()
        for seed, curve in by_seed.items()
        for lap, (played, success) in enumerate(curve)
    ]
    if options.figure:
        save_curves(_points(curves), options.figure, "trajectories", "arm", "Success by trajectories played")
    bar = Bar("trajectories to uniform's last success, curriculum over uniform", found[-1]["share"], SHARE, "lower")
    return finish("curriculum", [*rows, *found], [bar], options.json, [found, rows])


def reigns(laps: Sequence[Mapping[str, Any]]) -> list[tuple[int, str | None]]:
    """Trajectories played so far, and the policy that reigns, after each iteration; None while none was trained."""
    played, version, found = 0, None, []
    for lap in laps:
        played += lap["trajectories"]
        version = lap["policy"] if lap["promoted"] else version
        found.append((played, version))
    return found


def mean_of(curves: Sequence[Curve]) -> Curve:
    """The mean over training seeds, iteration by iteration."""
    whole = np.array(curves, dtype=float).mean(axis=0)
    return [(round(played), float(success)) for played, success in whole]


def reached(curve: Curve, success: float) -> float:
    """Trajectories played when a curve first is that high; infinite if it never is."""
    return next((float(played) for played, now in curve if now >= success), math.inf)


def needed(pairs: Sequence[Pair]) -> dict[str, Any]:
    """How high uniform sampling ends, and the trajectories that either needs to be there, in the mean of the seeds."""
    ours, theirs = (mean_of(curves) for curves in zip(*pairs, strict=True))
    played, target = theirs[-1]
    first = reached(ours, target)
    return {"target": target, "curriculum": first, "uniform": played, "share": first / played, "95 %": ""}


def interval(pairs: Sequence[Pair], seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the share, from training seeds that are drawn anew; infinite where it is never reached."""
    drawn = np.random.default_rng(seed).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    shares = [needed([pairs[at] for at in chosen])["share"] for chosen in drawn]
    low, high = (float(np.quantile(shares, end, method="nearest")) for end in (0.025, 0.975))
    return low, high


def _arm(options: argparse.Namespace, words: tuple[str, ...], name: str, word: str, seed: int) -> Arm:
    root = root_of(options.config, words)
    folder = root.parents[1] / "learning" / root.name / f"{name}-{seed}"
    return Arm(name, seed, options.config, folder, (*words, word, f"lake.uri={folder}/lake", f"seed={seed}"))


def _curve(arm: Arm, laps: int, test_seeds: int) -> Curve:
    """Turns an arm, and measures whoever reigned on the way."""
    arm.turn(laps)
    tasks = load_config(arm.config, arm.words).suite.tasks
    curve = []
    for played, version in reigns([lap for lap in arm.iterations() if 0 <= lap["iteration"] < laps]):
        plays = arm.measure(version, tasks, test_seeds)["plays"] if version else []
        won = [success for _, _, success in plays if success is not None]
        curve.append((played, sum(won) / len(won) if won else 0.0))
    return curve


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
