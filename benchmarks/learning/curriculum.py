"""Compare the curriculum with uniform sampling: trajectories until the final success of uniform sampling.

Both arms start from nothing and differ in `curriculum.method` alone: the same trajectories per iteration, the same
training, the config's own weights. Success is that of the champion after an iteration, greedy, on the same test seeds.
Each arm counts until the first iteration whose success, as mean over run seeds, reaches uniform sampling's last
one. Nothing is interpolated, so a curve against itself gives 1. No choice used these run seeds (21 and up) and
test seeds (4,000,000 and up).

It runs on the fake sandbox and on MiniWoB++; `--environment` picks one. The fake sandbox has six tasks and a small
network, which trains long enough that data is scarce, not steps. MiniWoB++ uses the config's own suite and network and
takes hours. An interrupted run resumes.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.arms import Arm, root_of
from benchmarks.harness import Bar, finish
from benchmarks.learning._start import FAKE, NETWORK
from schemas.config import load_config

SHARE = 0.5
ARMS = {"curriculum": "curriculum.method=learnable", "uniform": "curriculum.method=uniform"}
SETTINGS = {
    "fake": (
        *NETWORK,
        'suite.tasks=["click-one","click-target","click-of-three","two-steps","three-steps","enter-text"]',
        "collect.trajectories_per_task=8",
        "train.steps_first=600",
        "train.steps=300",
        "evaluate.seeds=20",
    ),
    "miniwob": (),
}
PLACES = {"fake": (FAKE,), "miniwob": ('environments={"miniwob":{}}',)}
FEW = {"fake": (), "miniwob": ('suite.tasks=["click-test","focus-text"]',)}
"""The tasks of `--short`, where they are not those of all benchmarks."""
CHOSEN_ON = range(6)
"""Run seeds that the curriculum's numbers were chosen on."""
FIRST_SEED, FIRST_TEST_SEED = 21, 4_000_000
RESAMPLES = 10_000
Curve = Sequence[tuple[int, float]]
"""Trajectories so far and the champion's success, iteration by iteration."""
Pair = tuple[Curve, Curve]
"""The curriculum's curve and uniform sampling's, of one run seed."""


def run(options: argparse.Namespace) -> int:
    """Turns both arms of every run seed in every environment and prints the tables."""
    found: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for environment in [options.environment] if options.environment else list(SETTINGS):
        curves = _curves(options, environment)
        found += table(environment, curves)
        rows += [
            {"environment": environment, "arm": name, "seed": seed, "iteration": iteration, "trajectories": count,
             "success": success}
            for name, by_seed in curves.items()
            for seed, curve in by_seed.items()
            for iteration, (count, success) in enumerate(curve)
        ]  # fmt: skip
    bars = [
        Bar(f"{row['environment']}: trajectories to uniform's last success, curriculum over uniform", row["share"],
            SHARE, "lower")
        for row in found
        if row["seed"] == "all"
    ]  # fmt: skip
    return finish("curriculum", [*rows, *found], bars, options, [found, rows])


def run_seeds(named: str | int, first: int = FIRST_SEED) -> list[int]:
    """`21,22,30`, or as many as the number says from the first on that no choice has seen.

    Raises:
        SystemExit: one of them is among those that the curriculum's numbers were chosen on.
    """
    text = str(named)
    seeds = [int(one) for one in text.split(",") if one] if "," in text else [*range(first, first + int(text))]
    if seen := sorted(set(seeds) & set(CHOSEN_ON)):
        raise SystemExit(f"--seeds: the curriculum's numbers were chosen on run seeds {seen}. Name others.")
    return seeds


def table(environment: str, curves: Mapping[str, Mapping[int, Curve]]) -> list[dict[str, Any]]:
    """What each run seed and their mean needed, with the interval of the mean's share."""
    pairs = {seed: (curve, curves["uniform"][seed]) for seed, curve in curves["curriculum"].items()}
    found = [{"environment": environment, "seed": seed, **needed([pair])} for seed, pair in pairs.items()]
    low, high = interval(list(pairs.values()))
    whole = {**needed(list(pairs.values())), "95 % (run seeds)": f"{low:.2f} to {high:.2f}"}
    return [*found, {"environment": environment, "seed": "all", **whole, "low": low, "high": high}]


def champions(iterations: Sequence[Mapping[str, Any]]) -> list[tuple[int, str | None]]:
    """Trajectories collected so far, and the policy that reigns, after each iteration; None while none was trained."""
    collected, version, found = 0, None, []
    for iteration in iterations:
        collected += iteration["trajectories"]
        version = iteration["policy"] if iteration["promoted"] else version
        found.append((collected, version))
    return found


def mean_of(curves: Sequence[Curve]) -> Curve:
    """The mean over run seeds, iteration by iteration."""
    whole = np.array(curves, dtype=float).mean(axis=0)
    return [(round(collected), float(success)) for collected, success in whole]


def reached(curve: Curve, success: float) -> float:
    """Trajectories collected when a curve first is that high; infinite if it never is."""
    return next((float(collected) for collected, now in curve if now >= success), math.inf)


def needed(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What uniform sampling ends with, and after how many trajectories either is there first, by the seeds' mean."""
    ours, theirs = (mean_of(curves) for curves in zip(*pairs, strict=True))
    target = theirs[-1][1]
    first, uniform = reached(ours, target), reached(theirs, target)
    return {
        "target": target,
        "curriculum": first,
        "uniform": uniform,
        "share": first / uniform,
        "95 % (run seeds)": "",
    }


def interval(pairs: Sequence[Pair], seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the share, from run seeds that are drawn anew; infinite where it is never reached."""
    drawn = np.random.default_rng(seed).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    shares = [needed([pairs[at] for at in chosen])["share"] for chosen in drawn]
    low, high = (float(np.quantile(shares, end, method="nearest")) for end in (0.025, 0.975))
    return low, high


def _curves(options: argparse.Namespace, environment: str) -> dict[str, dict[int, Curve]]:
    """Every arm's curve by run seed."""
    settings = () if options.short else SETTINGS[environment]
    overrides = (*settings, *options.overrides, *PLACES[environment], *(FEW[environment] if options.short else ()))
    iterations = options.start + options.iterations
    curves: dict[str, dict[int, Curve]] = {name: {} for name in ARMS}
    for seed in run_seeds(options.seeds):
        for name, word in ARMS.items():
            curves[name][seed] = _curve(_arm(options, overrides, name, word, seed), iterations, options.test_seeds)
    return curves


def _arm(options: argparse.Namespace, overrides: tuple[str, ...], name: str, word: str, seed: int) -> Arm:
    root = root_of(options.config, overrides)
    folder = root.parents[1] / "learning" / root.name / f"{name}-{seed}"
    return Arm(name, seed, options.config, folder, (*overrides, word, f"lake.uri={folder}/lake", f"seed={seed}"))


def _curve(arm: Arm, iterations: int, test_seeds: int) -> Curve:
    """Turns an arm, and measures whoever reigned on the way."""
    arm.run_until(iterations)
    tasks = load_config(arm.config, arm.overrides).suite.tasks
    curve = []
    for count, version in champions(
        [iteration for iteration in arm.iterations() if 0 <= iteration["iteration"] < iterations]
    ):
        trajectories = arm.measure(version, tasks, test_seeds, FIRST_TEST_SEED)["plays"] if version else []
        won = [success for _, _, success in trajectories if success is not None]
        curve.append((count, sum(won) / len(won) if won else 0.0))
    return curve
