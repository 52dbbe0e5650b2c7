"""Pass@k training against Pass@1 training at equal compute, on tasks the supervised champion mostly fails.

Arms from one champion, with the same number of groups, trajectories and epochs: Pass@1 (GRPO), Pass@k (analytic
advantage), and Pass@k for the first half of the iterations, then Pass@1. Every candidate goes on, whatever its greedy
success. The last one of each arm rolls out every test seed several times at the temperature of its groups; pass@1 and
pass@k are the unbiased estimates.
"""

import argparse

from benchmarks.learning._figure import save_points
from benchmarks.learning._sampled import by_seed, estimates, gap, mean_with_interval
from benchmarks.learning._start import branch, overrides_for, reigning, start_of, weak_tasks
from benchmarks.learning.rl import ABOVE
from benchmarks.shared.arms import Arm
from benchmarks.shared.paired import Key
from benchmarks.shared.report import Bar, finish
from schemas.config import load_config

BOTH = "pass@k then pass@1"
GROUPS = ("train.group.groups=200", "train.group.size=8", "train.group.k=4")
"""Of the arms, unless the benchmark is asked otherwise."""


def run(options: argparse.Namespace) -> int:
    """Turns the arms of every training seed and prints the table."""
    k = load_config(options.config, [*GROUPS, *options.overrides]).train.group.k
    if options.attempts < k:
        raise SystemExit(f"--attempts {options.attempts}: pass@{k} needs at least {k} trajectories of a seed.")
    outcomes: dict[str, dict[Key, list[bool]]] = {}
    for seed in range(options.seeds):
        start = start_of(options, seed)
        tasks = weak_tasks(start, options.most)
        if not tasks:
            raise SystemExit(
                f"The champion of training seed {seed} has no task between 0 and {options.most}: see --most."
            )
        for arm in _arms(start, tasks, options):
            measured = arm.sample(reigning(arm), tasks, options.test_seeds, options.attempts)
            outcomes.setdefault(arm.name, {}).update(by_seed(measured["plays"], seed))
    ends = options.start + 2 * options.iterations
    rows, found = [], {arm: {at: estimates(won, at) for at in (1, k)} for arm, won in outcomes.items()}
    for arm, by_k in found.items():
        rows += [
            {"arm": arm, "measure": f"pass@{at}", **mean_with_interval(values), "keys": len(values), "iterations": ends}
            for at, values in by_k.items()
        ]
    gaps = {
        f"pass@{k}: pass@k training minus pass@1 training": gap(found["pass@k"][k], found["pass@1"][k]),
        "pass@1: pass@k then pass@1 minus pass@1 training": gap(found[BOTH][1], found["pass@1"][1]),
        "pass@1: pass@k then pass@1 minus pass@k training": gap(found[BOTH][1], found["pass@k"][1]),
    }
    differences = [{"difference": name, **values} for name, values in gaps.items()]
    bars = [Bar(f"lower end of {name}", values["low"], ABOVE, "higher") for name, values in gaps.items()]
    if options.figure:
        save_points(rows, options.figure, "arm", "measure", "Pass@k and Pass@1 training on tasks that mostly fail")
    return finish("passk", [*rows, *differences], bars, options.json, [rows, differences])


def _arms(start: Arm, tasks: list[str], options: argparse.Namespace) -> list[Arm]:
    half, end = options.start + options.iterations, options.start + 2 * options.iterations
    # every candidate goes on, as the gate asks for greedy success, which Pass@k training gives up for more variety
    overrides = (
        "train.method=grpo",
        "promote.tolerance=0.9",
        "promote.unparsable=1",
        *GROUPS,
        *options.overrides,
        *overrides_for(tasks),
    )
    once = branch(start, "pass@1", *overrides, "train.group.advantage=pass1")
    often = branch(start, "pass@k", *overrides, "train.group.advantage=passk")
    once.turn(end)
    often.turn(half)
    both = branch(often, BOTH, "train.group.advantage=pass1")
    both.turn(end)
    often.turn(end)
    return [once, often, both]
