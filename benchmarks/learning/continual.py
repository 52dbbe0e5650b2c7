"""What continual training (CT) before the supervised training is worth, at equal compute and on the same data.

Arms: `none`, supervised training alone; `relabelled`, what failed trajectories show; `trajectories`, the failed
trajectories themselves mixed with perception data, as UI-TARS and UI-TARS-2 have it; `perception`, that alone. All read
one lake of a supervised start, and each trains twice: from nothing and from the start's champion. The tokens of every
arm are the same, screens counted as the trainer's own balance counts them: what an arm spends on CT, `none` spends on
more supervised steps. Measured greedily on test seeds, paired with `none`. There is no bar: nobody has printed one.
"""

import argparse
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning._start import NETWORK, lake_of, reigning, start_of
from benchmarks.shared.arms import Arm
from benchmarks.shared.paired import Key, difference
from benchmarks.shared.report import finish
from learning.data.sample import order_of, read_samples, read_screenshots
from learning.engines.tiny.batches import Batcher
from models.tiny.generator import read_tokenizer
from models.tiny.network import TinyNet
from schemas.config import Config, config_of, load_config
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import last_iteration
from tasks.train.supervised import continual_material, supervised
from tasks.train.train import job_of, pins_of, train_from

Row = dict[str, Any]
ARMS: dict[str, Row | None] = {
    "none": None,
    "relabelled": {"form": "relabelled", "perception": 0.0},
    "trajectories": {"form": "trajectories", "perception": 0.5},
    "perception": {"form": "trajectories", "perception": 1.0},
}
SETTINGS = {
    "fake": (
        *NETWORK,
        'suite.tasks=["click-one","click-target","click-of-three","two-steps","three-steps","enter-text"]',
        "collect.trajectories_per_task=40",
        "annotate.screens=400",
        "train.steps_first=140",
        "train.steps=70",
        "train.ct.steps=70",
        "evaluate.seeds=10",
    ),
    "miniwob": (),
}
FIRST_SEED = 31
"""Training seeds from here on are for no choice."""
PARENTS = ("champion", "nothing")
"""What the arms are trained from: where the wheel stands when it comes to CT, and an untrained policy."""
COUNTED = 256
"""Samples whose tokens are counted."""


def run(options: argparse.Namespace) -> int:
    """Trains every arm from both parents with every training seed, and prints the tables."""
    if not options.short:
        options.overrides = [*SETTINGS[options.environment or "fake"], *options.overrides]
    rows: list[Row] = []
    parents = (options.parent,) if options.parent else PARENTS
    for begins in parents:
        for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
            start = start_of(options, seed)
            parent = reigning(start) if begins == "champion" else "policy-initial"
            rows += _arms(options, start, begins, parent)
    lifts = [_lift(rows, begins, arm) for begins in parents for arm in ARMS if arm != "none"]
    return finish("continual", [*rows, *lifts], [], options.json, [rows, lifts])


def _arms(options: argparse.Namespace, start: Arm, begins: str, parent: str) -> list[Row]:
    """All arms of one training seed from one parent, trained once and measured."""
    lake, config = lake_of(start), load_config(start.config, start.overrides)
    base = PolicyRecipe(f"continual-{begins}", parent, last_iteration(lake), pins_of(lake))
    steps = config.train.steps_first if begins == "nothing" else config.train.steps
    imitation, measured = _tokens(config, lake, base, supervised), config.suite.tasks
    usual = _with_ct(config, ARMS["relabelled"] or {})
    budget = config.train.ct.steps * _tokens(usual, lake, base, continual_material)
    rows: list[Row] = []
    for arm, ct in ARMS.items():
        version, spent, before = f"{base.version}-{arm}", 0, _processor_s()
        first = base
        if ct is not None:
            chosen = _with_ct(config, ct)
            spent = round(budget / _tokens(chosen, lake, base, continual_material))
            first = _recipe(base, f"{version}-ct", parent)
            _train(_with_ct(config, ct, spent), lake, first)
        more = 0 if ct is not None else round(budget / imitation)
        after = _recipe(base, version, first.version if ct is not None else parent)
        _train(_supervised(config, steps + more), lake, after)
        found = start.measure(version, measured, options.test_seeds)
        rows.append(
            {
                "arm": arm,
                "from": begins,
                "seed": start.seed,
                "success": found["success"],
                "ct steps": spent,
                "sft steps": steps + more,
                "million tokens": round((budget + steps * imitation) / 1e6, 3),
                "processor s": round(_processor_s() - before, 1),
                "plays": found["plays"],
            }
        )
    return rows


def _train(config: Config, lake: Lake, recipe: PolicyRecipe) -> None:
    """Trains a recipe, once."""
    if not lake.count("policies", {"policy_version": recipe.version}):
        train_from(config, lake, recipe)


def _recipe(base: PolicyRecipe, version: str, parent: str) -> PolicyRecipe:
    return PolicyRecipe(version, parent, base.iteration, base.pins, "intermediate")


def _with_ct(config: Config, changes: Row, steps: int | None = None) -> Config:
    fields = config.model_dump()
    ct = {**fields["train"]["ct"], **changes, **({} if steps is None else {"steps": max(1, steps)})}
    return config_of({**fields, "train": {**fields["train"], "method": "ct", "ct": ct}})


def _supervised(config: Config, steps: int) -> Config:
    fields = config.model_dump()
    return config_of({**fields, "train": {**fields["train"], "steps_first": steps, "steps": steps}})


def _tokens(config: Config, lake: Lake, recipe: PolicyRecipe, read: Any) -> float:
    """Tokens of an optimiser step: the mean over samples as they would come, times the batch."""
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(config, lake, recipe, Path(folder), read(config, lake, recipe))
        samples = read_samples(job.samples)
        order = order_of(samples)
        assert order is not None
        net = TinyNet.load(job.parent)
        batcher = Batcher(read_tokenizer(job.parent), net, read_screenshots(job.screenshots), job.policy, job.train)
        chosen = order[:COUNTED].tolist()
        counts = [batcher.tokens(samples[number], (job.seed, place)) for place, number in enumerate(chosen)]
    return job.train.batch * sum(counts) / len(counts)


def _lift(rows: Sequence[Row], begins: str, arm: str) -> Row:
    found = difference(_outcomes(rows, begins, arm), _outcomes(rows, begins, "none"))
    return {
        "arm": f"{arm} minus none",
        "from": begins,
        "success": found.mean,
        "clusters, low": found.clusters[0],
        "clusters, high": found.clusters[1],
        "trajectories, low": found.trajectories[0],
        "trajectories, high": found.trajectories[1],
        "paired": found.n,
    }


def _outcomes(rows: Sequence[Row], begins: str, arm: str) -> dict[Key, bool]:
    return {
        (row["seed"], task, seed): success
        for row in rows
        if row["arm"] == arm and row["from"] == begins
        for task, seed, success in row["plays"]
        if success is not None
    }


def _processor_s() -> float:
    """Seconds that children of this process have had of a processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
