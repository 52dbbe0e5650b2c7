"""Measure corrections of failed trajectories: their number, their cost, their verification, their worth.

The explorer collects the same number of trajectories of every task, and all failures are corrected (`reflect.*`). The
sandbox steps per verified correction, with replayed steps and failed attempts, are compared with the steps per success
of plain collection on the same tasks.

With `--training`, arms have equal sandbox steps and equal training (docs/reflect.md): `plain`; `corrections`, which
uses part of its steps for corrections; and both followed by `dpo` on the pairs of their lakes. Held-out success is
paired by run seed, task and test seed. Every arm is a lake under FLYWHEEL_HOME, so an interrupted run resumes
there.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.arms import Arm, root_of
from benchmarks.harness import Bar, add_options, finish
from benchmarks.learning._start import NETWORK
from benchmarks.paired import difference, outcomes
from schemas.config import Config, load_config
from storage.catalog import ask
from storage.lake import Lake
from tasks.collect.collect import collect_trajectories
from tasks.curriculum import choose_tasks
from tasks.filter import filter_trajectories
from tasks.prepare import prepare_lake
from tasks.reflect.reflect import reflect_on_failures
from tasks.running.run import open_run

Row = dict[str, Any]
FOUND = 0.60
"""Of the failed trajectories, those for which a verified correction is to be found."""
SHORT = (
    *NETWORK,
    'suite.tasks=["click-target","click-of-three","two-steps","enter-text"]',
    "train.steps_first=200",
    "train.steps=100",
    "evaluate.seeds=8",
)
"""The fake sandbox and a smaller network."""
SPENT = 0.5
"""Share of the plain arm's trajectories that the arm with corrections collects; the rest of the steps is theirs."""


def main(words: Sequence[str] | None = None) -> int:
    """Runs both parts and prints the tables; exit code 1 if a bar is missed."""
    options = _options(words)
    lake, config = _searched(options)
    rows = search_rows(lake)
    bars = search_bars(rows, lake, config)
    tables: list[list[Row]] = [rows]
    if options.training:
        trained, lifts = _trained(options)
        rows, tables = [*rows, *trained, *lifts], [*tables, trained, lifts]
        bars += [Bar(f"{one['arm']} minus plain, lower end", one["clusters, low"], 0.0, "higher") for one in lifts]
    return finish("reflection", rows, bars, options, tables)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reflection",
        description=__doc__,
        epilog="--short: on the fake sandbox, with few trajectories.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="section.key=value", help="changes to the config")
    parser.add_argument("--config", default="configs/miniwob.toml")
    parser.add_argument("--trajectories", type=int, default=20, help="collected per task")
    parser.add_argument("--training", action="store_true", help="compare trainings with and without corrections")
    parser.add_argument("--seeds", type=int, default=3, help="run seeds per arm")
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--test-seeds", type=int, default=40, help="test seeds per task")
    options = add_options(parser).parse_args(words)
    if options.short:
        options.words = [*SHORT, *options.words]
    return options


def _searched(options: argparse.Namespace) -> tuple[Lake, Config]:
    """A lake in which the explorer collected, and failures were gone back to."""
    collected = (
        *options.words,
        "suite.practice=[]",
        "curriculum.method=uniform",
        f"collect.trajectories_per_task={options.trajectories}",
        "reflect.on=true",
        "reflect.trajectories=100000",
        "reflect.steps=1000000",
        "evaluate.explorer_seeds=1",
        "evaluate.untrained_seeds=1",
    )
    folder = root_of(options.config, collected).parents[1] / "reflection" / root_of(options.config, collected).name
    config = load_config(options.config, [*collected, f"lake.uri={folder}/lake"])
    with open_run(config) as run:
        prepare_lake.fn(config, -1)  # the stages themselves, without Prefect
        for stage in (choose_tasks, collect_trajectories, filter_trajectories, reflect_on_failures):
            stage.fn(config, 0)
        return run.lake, config


def search_rows(lake: Lake) -> list[Row]:
    """By task in which something failed: failures, those corrected, steps, and what a plain success takes there."""
    rolled = lake.read("trajectories", ["trajectory_id", "task_id", "n_steps", "success", "continues"]).to_pylist()
    notes = lake.read("annotations", ["trajectory_id", "kind"]).to_pylist()
    task_of = {one["trajectory_id"]: one["task_id"] for one in rolled}
    corrected, recovered = (
        Counter(task_of[one["trajectory_id"]] for one in notes if one["kind"] == kind)
        for kind in ("correction", "reflection")
    )
    tries = [one for one in rolled if one["continues"]]
    failed = Counter(one["task_id"] for one in rolled if one["success"] is False and not one["continues"])
    rows: list[Row] = []
    for task in sorted(failed):
        plain = [one for one in rolled if one["task_id"] == task and not one["continues"]]
        ours = [one for one in tries if one["task_id"] == task]
        rows.append(
            {
                "task": task,
                "failed": failed[task],
                "corrected": corrected[task],
                "recovered": recovered[task],
                "attempts": len(ours),
                "steps": sum(one["n_steps"] for one in ours),
                "plain steps": sum(one["n_steps"] for one in plain),
                "plain successes": sum(bool(one["success"]) for one in plain),
            }
        )
    return rows


def search_bars(rows: Sequence[Row], lake: Lake, config: Config) -> list[Bar]:
    """How many were found, what one costs beside a plain success, and what is taught unverified."""
    total = {key: sum(row[key] for row in rows) for key in rows[0] if key != "task"} if rows else Counter[str]()
    verified = total["corrected"] + total["recovered"]
    cost = total["steps"] / max(1, verified)
    plain = total["plain steps"] / max(1, total["plain successes"])
    return [
        Bar(
            "failed trajectories with a verified correction",
            total["corrected"] / max(1, total["failed"]),
            FOUND,
            "higher",
        ),
        Bar(f"sandbox steps per verified correction ({verified}); bar: per plain success", cost, plain, "lower"),
        Bar("steps of unverified corrections that are taught", float(unverified(lake, config)), 0.0, "lower"),
    ]


def unverified(lake: Lake, config: Config) -> int:
    """Steps and pairs of corrections that a training reads and no verifier saw succeed, or that were replayed."""
    rolled = {one["trajectory_id"]: one for one in lake.read("trajectories").to_pylist() if one["continues"]}
    weights = ask(
        lake, "training_weights", history_images=config.policy.context_rule.live, measured="", balance=1.0, floor=0.15,
        grounding_share=0.0, practice=[], practice_share=0.0, prefixes=config.filter.prefixes,
        corrections=config.filter.corrections,
    ).to_pylist()  # fmt: skip
    taught = [one for one in weights if one["weight"] and not one["grounding"] and one["trajectory_id"] in rolled]
    wrong = [
        one
        for one in taught
        if not rolled[one["trajectory_id"]]["success"] or one["step"] < rolled[one["trajectory_id"]]["replayed"]
    ]
    pairs = {one["pair_id"]: one for one in lake.read("pairs").to_pylist() if one["kind"] != "parting"}
    read = ask(lake, "training_pairs", corrections=config.filter.corrections)["pair_id"].to_pylist()
    return len(wrong) + sum(not pairs[name]["verified"] for name in read if name in pairs)


def _trained(options: argparse.Namespace) -> tuple[list[Row], list[Row]]:
    """Both arms of every run seed, each also after `dpo`, and their differences from the plain one."""
    rows: list[Row] = []
    for seed in range(options.seeds):
        plain = _arm(options, "plain", seed)
        plain.run_until(options.iterations)
        ours = _arm(options, "corrections", seed)
        ours.run_until(options.iterations)
        for arm in (plain, ours):
            rows += [
                _measured(options, arm, _last(arm), arm.name),
                _measured(options, arm, _preferred(arm), f"{arm.name}, dpo"),
            ]
    names, plain = ("corrections", "corrections, dpo", "plain, dpo"), outcomes(rows, arm="plain")
    found = {name: difference(outcomes(rows, arm=name), plain) for name in names}
    return rows, [{"arm": name, "minus": "plain", **gap.row()} for name, gap in found.items()]


def _arm(options: argparse.Namespace, name: str, seed: int) -> Arm:
    """The plain arm collects with all its steps; the other with `SPENT` of them, and goes back with the rest."""
    folder = root_of(options.config, options.words).parents[1] / "reflection"
    folder = folder / f"{root_of(options.config, options.words).name}-{options.trajectories}" / f"{name}-{seed}"
    words = [*options.words, f"lake.uri={folder}/lake", f"seed={seed}", "promote.tolerance=0.9", "promote.unparsable=1"]
    count = options.trajectories
    if name == "corrections":
        count = max(1, round(SPENT * count))
        spent = _steps(_arm(options, "plain", seed)) / max(1, options.iterations) * (1 - SPENT)
        words += ["reflect.on=true", "reflect.trajectories=100000", f"reflect.steps={max(1, round(spent))}"]
    words.append(f"collect.trajectories_per_task={count}")
    return Arm(name, seed, options.config, folder, tuple(words))


def _lake(arm: Arm) -> Lake:
    return Lake.open(load_config(arm.config, arm.overrides).lake, create=False)


def _steps(arm: Arm) -> int:
    """Sandbox steps that an arm took for data."""
    return sum(_lake(arm).read("trajectories", ["n_steps"])["n_steps"].to_pylist())


def _last(arm: Arm) -> str:
    """The policy that the last iteration made."""
    return arm.iterations()[-1]["policy"]


def _preferred(arm: Arm) -> str:
    """The champion after `dpo` on all pairs of the lake, trained once; itself where there are none."""
    if not _lake(arm).count("pairs"):
        return _last(arm)
    kept = arm.folder / "dpo.json"
    if not kept.exists():
        own = (word for word in arm.overrides if not word.startswith("reflect."))
        retrained = Arm(arm.name, arm.seed, arm.config, arm.folder, (*own, "train.method=dpo"))
        before = set(_lake(arm).read("policies", ["policy_version"])["policy_version"].to_pylist())
        retrained.flywheel("retrain")
        after = set(_lake(arm).read("policies", ["policy_version"])["policy_version"].to_pylist())
        part = kept.with_suffix(".part")
        part.write_text(json.dumps({"policy": next(iter(after - before), _last(arm))}))
        part.replace(kept)
    return json.loads(kept.read_text())["policy"]


def _measured(options: argparse.Namespace, arm: Arm, version: str, name: str) -> Row:
    config = load_config(arm.config, arm.overrides)
    measured = arm.measure(version, config.suite.tasks, options.test_seeds)
    pairs = Counter(_lake(arm).read("pairs", ["kind"])["kind"].to_pylist())
    return {
        "arm": name,
        "seed": arm.seed,
        "policy": version,
        "success": measured["success"],
        "sandbox steps": _steps(arm),
        "corrections": pairs["correction"],
        "recoveries": pairs["post_reflection"],
        "partings": pairs["parting"],
        "plays": measured["plays"],
    }


if __name__ == "__main__":
    sys.exit(main())
