"""Whether a config's policy is the one that a lake's policies descend from, and what it holds out unknown to them."""

import json

from curation.synthesis.leaks import ancestors
from environments.catalog import catalog
from schemas.config import Config
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.policies import origin_of
from tasks.shared.suite import parents_of

SHAPE = ("hidden", "layers", "vision_hidden", "vision_layers", "patch", "merge")
"""Keys of `policy` that only the small policy is built from, once per lake."""
LEARNT = ("base", "dialect")
"""Keys of `policy` that say what its weights were made from and what they were taught to write."""


def require_descent(config: Config, lake: Lake) -> None:
    """Refuses a config whose policy would be ignored: the champion, which acts and is trained on, has another start.

    Raises:
        UsageError: names both, and what can be done.
    """
    origin = origin_of(lake)
    if origin is None:
        return
    made = json.loads(origin.config)["policy"]
    asked = config.policy.model_dump(mode="json")
    keys = LEARNT + (SHAPE if origin.kind == "initial" and made["base"] == "tiny" else ())
    for key in keys:
        if key in made and made[key] != asked[key]:
            name = origin.policy_version
            raise UsageError(
                f"`policy.{key}={asked[key]}`: the champion of {lake.uri} descends from {name}, made with "
                f"policy.{key}={made[key]}.",
                "Set a new `lake.uri`, or bring the other checkpoint in as a challenger: `flywheel adopt DIR`.",
            )


def require_held_out(config: Config, lake: Lake) -> None:
    """Refuses to hold out what the lake has data of: its policies have learnt from it, or are about to.

    Raises:
        UsageError: names the task, or the task that was made of it.
    """
    held = {task.task_id for task in catalog(config) if task.split == "held_out"}
    rolled_out = set(lake.read("trajectories", ["task_id"], {"split": "train"})["task_id"].unique().to_pylist())
    parents = parents_of(lake)
    for task in sorted(rolled_out):
        if leaking := ({task} | set(ancestors([task], parents))) & held:
            of = "" if task in leaking else ", which was made of it"
            raise UsageError(
                f"`suite.held_out`: {min(leaking)} is held out, but {lake.uri} has trajectories of {task}{of}, and its "
                "policies learn from them.",
                "Set a new `lake.uri`, or do not hold the task out.",
            )
