"""Compare 200 decisions of a reviewer with 200 further trajectories.

`python -m benchmarks.learning.people [--short] [--seeds N] --json PATH`, on the fake sandbox with a small network

For every run seed a few iterations are run. Then three arms continue from copies of the same lake, on the four
tasks in which its champion is weakest. `people`: a scripted annotator decides 200 times at the API of a real `flywheel
desk`, then `flywheel retrain`. `collected`: 200 further trajectories of the same tasks, and the iteration's training.
`equal steps`: further trajectories with as many sandbox steps as `people` took, whose corrections are tried in
sandboxes. All train once, from the same champion, for the same number of steps. Success on the four tasks is paired by
run seed, task and test seed. Every arm is a lake under FLYWHEEL_HOME, so an interrupted run resumes there.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.arms import Arm, root_of
from benchmarks.harness import Bar, add_options, finish
from benchmarks.learning._annotator import annotate, desk_of
from benchmarks.learning._start import NETWORK, branch, champion_of, lake_of
from benchmarks.paired import difference, outcomes
from storage.catalog import ask

Row = dict[str, Any]
TASKS = 'suite.tasks=["click-target","click-of-three","two-steps","three-steps","enter-text"]'
LONG = (*NETWORK, TASKS, "evaluate.seeds=8", "train.steps_first=300", "train.steps=150")
SHORT = (*LONG, "train.steps_first=20", "train.steps=10")
WEAKEST = 4
EQUAL = "equal steps"


def main(words: Sequence[str] | None = None) -> int:
    """Runs the arms and prints the tables; exit code 1 if the bar is missed."""
    options = _options(words)
    rows = [
        row for seed in range(options.first_seed, options.first_seed + options.seeds) for row in _seed(options, seed)
    ]
    lifts = [
        {"arm": ours, "minus": theirs, **difference(outcomes(rows, arm=ours), outcomes(rows, arm=theirs)).row()}
        for ours, theirs in (
            ("people", "collected"),
            ("people", EQUAL),
            ("people", "start"),
            ("collected", "start"),
            (EQUAL, "start"),
        )
    ]
    bar = Bar("people minus collected, lower end", lifts[0]["clusters, low"], 0.0, "higher")
    return finish("people", [*rows, *lifts], [bar], options, [rows, lifts])


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.people",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="--short: hardly any training; enough to see that the benchmark works.",
    )
    parser.add_argument("words", nargs="*", metavar="section.key=value", help="changes to the config")
    parser.add_argument("--config", default="configs/miniwob.toml")
    parser.add_argument("--decisions", type=int, default=200, help="and further trajectories of the other arm")
    parser.add_argument("--trajectories", type=int, default=60, help="collected per task and iteration before")
    parser.add_argument("--iterations", type=int, default=3, help="before")
    parser.add_argument("--seeds", type=int, default=3, help="run seeds per arm")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--test-seeds", type=int, default=60, help="test seeds per task")
    options = add_options(parser).parse_args(words)
    options.words = [*(SHORT if options.short else LONG), *options.words]
    if options.short:
        options.decisions, options.iterations, options.seeds, options.test_seeds = 16, 1, 1, 8
    return options


def _seed(options: argparse.Namespace, seed: int) -> list[Row]:
    start = _start(options, seed)
    weak = _weakest(start)
    champion = champion_of(start)
    each = options.decisions // len(weak)
    before = _measured(options, start, start, champion, weak)
    people = _measured(options, start, *_people(options, start, weak), weak)
    collected = _measured(options, start, *_collected(options, start, weak, "collected", each), weak)
    more = round(each * people["sandbox steps"] / collected["sandbox steps"])
    return [before, people, collected, _measured(options, start, *_collected(options, start, weak, EQUAL, more), weak)]


def _start(options: argparse.Namespace, seed: int) -> Arm:
    root = root_of(options.config, options.words)
    folder = root.parents[1] / "people" / f"{root.name}-{options.trajectories}" / f"start-{seed}"
    words = [*options.words, f"lake.uri={folder}/lake", f"seed={seed}", "promote.tolerance=0.9", "promote.unparsable=1"]
    words.append(f"collect.trajectories_per_task={options.trajectories}")
    arm = Arm("start", seed, options.config, folder, tuple(words))
    arm.run_until(options.iterations)
    return arm


def _weakest(start: Arm) -> list[str]:
    """The tasks in which the champion's validation success is the least."""
    won: dict[str, list[bool]] = {}
    for row in (
        lake_of(start).read("evaluations", where={"policy_version": champion_of(start), "suite": "suite"}).to_pylist()
    ):
        if row["success"] is not None:
            won.setdefault(row["task_id"], []).append(row["success"])
    return sorted(won, key=lambda task: (sum(won[task]) / len(won[task]), task))[:WEAKEST]


def _people(options: argparse.Namespace, start: Arm, weak: Sequence[str]) -> tuple[Arm, str]:
    """The arm in which somebody decides, and the policy that was retrained on it."""
    arm = branch(start, "people")
    kept = arm.folder / "decided.json"
    left = options.decisions - lake_of(arm).count("reviews")
    if left > 0:
        with desk_of(arm) as address:
            annotate(address, weak, left)
    if not kept.exists():
        made = json.loads(arm.flywheel("retrain", "--json"))["policy"]
        kept.write_text(json.dumps({"policy": made}))
    return arm, json.loads(kept.read_text())["policy"]


def _collected(options: argparse.Namespace, start: Arm, weak: Sequence[str], name: str, each: int) -> tuple[Arm, str]:
    """The arm that collects so many further trajectories of each of the same tasks, and the policy that it trains."""
    names = json.dumps([task.rpartition("/")[2] for task in weak])
    more = (f"suite.tasks={names}", "curriculum.method=uniform", f"collect.trajectories_per_task={each}")
    arm = branch(start, name, *more)
    arm.run_until(options.iterations + 1)
    return arm, arm.iterations()[-1]["policy"]


def _measured(options: argparse.Namespace, start: Arm, arm: Arm, version: str, weak: Sequence[str]) -> Row:
    measured = arm.measure(version, [task.rpartition("/")[2] for task in weak], options.test_seeds)
    lake, before = lake_of(arm), set(_ids(start))
    new = [one for one in lake.read("trajectories").to_pylist() if one["trajectory_id"] not in before]
    decided = lake.read("reviews", ["decision"])["decision"].to_pylist()
    states = [one["state"] for one in ask(lake, "people_corrections").to_pylist()]
    return {
        "arm": arm.name,
        "seed": arm.seed,
        "policy": version,
        "success": measured["success"],
        "decisions": len(decided),
        "corrected": decided.count("correct"),
        "verified": states.count("verified"),
        "new trajectories": len(new),
        "successes": sum(bool(one["success"]) for one in new),
        "sandbox steps": sum(one["n_steps"] for one in new),
        "plays": measured["plays"],
    }


def _ids(arm: Arm) -> list[str]:
    return lake_of(arm).read("trajectories", ["trajectory_id"])["trajectory_id"].to_pylist()


if __name__ == "__main__":
    sys.exit(main())
