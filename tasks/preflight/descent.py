"""Check that the lake's policies descend from the config's policy, and were not trained on held-out tasks."""

import json
from collections.abc import Mapping
from pathlib import Path

from curation.synthesis.leaks import ancestors
from environments.catalog import whole_catalog
from models.tiny.layout import read_config
from schemas.config import Config
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.policies import origin_of
from tasks.shared.suite import parents_of

SHAPE = ("hidden", "layers", "vision_hidden", "vision_layers", "patch", "merge")
"""Keys of `policy` for the shape of the small policy, which is fixed in a lake."""
LEARNT = ("base", "dialect")
"""Keys of `policy` for the origin of the weights and the trained output format."""
UNNAMED = {"qwen2_5_vl": "pixels"}
"""Unit of coordinates by `model_type`, for `policy.family=auto` in lakes that are older than named families. All other
models used thousandths."""


def require_descent(config: Config, lake: Lake) -> None:
    """Refuse a config whose policy differs from the origin of the champion.

    A run acts with the champion and trains from it, so the config's policy would be ignored.

    Raises:
        UsageError: the policies differ. The message has both policies and the possible fixes.
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
    if origin.kind == "initial" and config.policy.base != "tiny":
        _require_family(config, made, lake.uri)


def _require_family(config: Config, made: Mapping[str, object], uri: str) -> None:
    """Refuse a family whose format differs from the format that the lake's policies were trained with."""
    from models.families.registry import name_of

    asked, was = name_of(config.policy), str(made.get("family", "auto"))
    if was == "auto" and "template" not in made:
        was = UNNAMED.get(str(read_config(Path(config.policy.base)).get("model_type")), "thousandths")
    elif was == "auto":
        try:
            was = name_of(config.policy.model_copy(update={"family": "auto"}))
        except UsageError:  # an older release used thousandths for unknown models; a name is required now
            was = asked
    templates = (made.get("template", "computer"), config.policy.template)
    for key, before, now in (("family", was, asked), ("template", *templates)):
        if before != now:
            raise UsageError(
                f"`policy.{key}` comes to {now}, and the policies of {uri} were taught with {before}.",
                f"Set policy.{key}={before}, or a new `lake.uri`.",
            )


def require_held_out(config: Config, lake: Lake) -> None:
    """Refuse to hold out tasks with data in the lake, because policies have learned or will learn from this data.

    Raises:
        UsageError: there is such a task. The message has the task, or the task that was made from it.
    """
    held = {task.task_id for task in whole_catalog(config) if task.split == "held_out"}
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
