"""Select the data of supervised and continual training from all iterations, and mix its kinds in one file.

The lake has the samples and their weights, and `learning.data.rounds` computes the order. Only samples that occur in
the training are read in full: at most S x B samples, or slices of trajectories (`learning.data.slices`), for S steps
with B of them each.

The module also defines the results of trainings, and of streamed trainings, which the stage `collect` stores for the
stage `train`.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from environments.catalog import catalog
from learning.data.rounds import Sampler, by_sample
from learning.data.sample import write_sample_batches
from learning.data.slices import slices_of
from schemas.config import Config
from schemas.config.training import ContinualConfig, TrainConfig
from schemas.context import ContextRule
from schemas.failure import FlywheelError
from schemas.table import Metrics
from schemas.tables.stage import PlainResult
from storage.catalog import ask, stream
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe, TrainingMaterial, seed_of
from tasks.shared.policies import measured_ancestor
from tasks.shared.weights import draws_slices


class Streamed(BaseModel):
    """Result of a streamed training. Further fields are metrics."""

    model_config = ConfigDict(frozen=True, extra="allow")

    updates: int
    checkpoint: str
    """Address of the checkpoint in the lake; empty if nothing could be learned."""
    say: str

    @property
    def metrics(self) -> Metrics:
        """Return the metrics to store with the policy."""
        return self.model_dump(exclude={"checkpoint", "say"})


class TrainResult(PlainResult):
    """Result of a training, with the metrics of its method and its trainer."""

    policy: str | None = None
    """Version of the registered policy; None if nothing was trained."""


@dataclass(frozen=True, slots=True)
class MixturePart:
    """Samples of one kind."""

    weighed: pa.Table
    """Samples with their `weight`. A row without a weight never occurs."""
    query: str
    """Query for the content of the samples that occur."""
    share: float = 1.0
    """Share of the training. The share of a part without samples goes to the other parts."""
    steps: bool = False
    """Whether the rows are steps. Each step is then written with the steps that lead to it."""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the query."""

    @property
    def usable(self) -> int:
        """Number of samples that can occur."""
        weights = self.weighed["weight"]
        return len(weights) - weights.null_count


def supervised(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return all accepted data, screens of failures for grounding, perception data, and questions about recordings."""
    weighed = weighed_targets(config, lake, measured_ancestor(lake, recipe.parent).policy_version, recipe.pins)
    usable = weighed["grounding"].filter(weighed["weight"].is_valid()).to_numpy()
    screens, targets = int(usable.sum()), int((~usable).sum())
    others = _asked_parts(lake, recipe, config.train)
    steps = MixturePart(weighed, "training_samples", _rest(config.train), steps=True, parameters=_reported(config))
    counts = {name: part.usable for name, part in others.items() if part.share}
    numbers = {"samples": targets, "grounding_screens": screens, **counts}
    summary = f"{targets} accepted trajectory steps"
    summary += "".join(f", {count} {name} samples" for name, count in counts.items())
    return TrainingMaterial(
        write=_writer(config, lake, recipe, [steps, *others.values()]),
        samples=targets + screens + sum(counts.values()),
        numbers=numbers,
        summary=summary,
        nothing="" if targets else "no accepted trajectory yet",
    )


def weighed_targets(
    config: Config, lake: Lake, measured: str = "", versions: Mapping[str, int] | None = None
) -> pa.Table:
    """Return every step that can be imitated, with its weight from `storage/queries/training_weights.sql`.

    Args:
        config: config of the training.
        lake: the lake.
        measured: policy whose success rates weigh the tasks; if empty, every task counts as not measured.
        versions: versions of the tables; the current versions if not given.
    """
    return ask(
        lake,
        "training_weights",
        versions,
        history_images=config.policy.context_rule.live,
        measured=measured,
        balance=config.train.task_balance,
        floor=config.train.task_floor,
        grounding_share=config.train.grounding_share,
        practice=[task.task_id for task in catalog(config) if task.split == "practice"],
        practice_share=config.train.practice,
        prefixes=config.filter.prefixes,
        corrections=config.filter.corrections,
    )


def continual_material(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return data of the failed trajectories of all iterations, perception data, and questions about recordings.

    The data of a failed trajectory is relabelled samples, or the trajectory's own steps (`train.ct.form`).
    """
    ct = config.train.ct
    failed, kinds = (_relabelled if ct.form == "relabelled" else _trajectories)(config, lake, recipe)
    others = _asked_parts(lake, recipe, ct)
    kinds |= {name: part.usable for name, part in others.items() if part.share}
    parts = [part for part in (failed, *others.values()) if part.share]
    samples = sum(part.usable for part in parts)
    return TrainingMaterial(
        write=_writer(config, lake, recipe, parts),
        samples=samples,
        numbers={"samples": samples, "kinds": kinds},
        summary=", ".join(f"{kind} {count}" for kind, count in kinds.items()),
        nothing="" if samples else "no failed trajectory shows anything yet",
    )


def _relabelled(config: Config, lake: Lake, recipe: PolicyRecipe) -> tuple[MixturePart, dict[str, int]]:
    """Return relabelled samples of failed trajectories, and their number by kind."""
    weighed = ask(lake, "continual_weights", recipe.pins)
    counts = Counter("grounding" if kind == "step" else kind for kind in weighed["kind"].to_pylist())
    return MixturePart(weighed, "continual_samples", _rest(config.train.ct)), dict(sorted(counts.items()))


def _trajectories(config: Config, lake: Lake, recipe: PolicyRecipe) -> tuple[MixturePart, dict[str, int]]:
    """Return the own steps of failed trajectories as targets."""
    weighed = ask(lake, "continual_step_weights", recipe.pins)
    share = _rest(config.train.ct)
    part = MixturePart(weighed, "training_samples", share, steps=True, parameters=_reported(config))
    return part, {"failed_steps": part.usable}


def _reported(config: Config) -> Mapping[str, int | float | bool]:
    """Return the settings of a step's thoughts."""
    return {
        "thoughts": config.policy.thoughts,
        "without": config.think.keep_without,
    }


def _writer(config: Config, lake: Lake, recipe: PolicyRecipe, parts: Sequence[MixturePart]) -> Any:
    seed, pins, rule = seed_of(config, recipe), recipe.pins, config.policy.context_rule
    sliced = draws_slices(config, lake, recipe.parent)
    return lambda path, schedule: write_mixture(path, parts, schedule.positions, seed, lake, pins, rule, sliced)


def _rest(shares: TrainConfig | ContinualConfig) -> float:
    """Return the share of samples of trajectories' steps."""
    return max(0.0, 1 - shares.perception - shares.video - shares.general)


def _asked_parts(lake: Lake, recipe: PolicyRecipe, shares: TrainConfig | ContinualConfig) -> dict[str, MixturePart]:
    """Return the questions about screens and recordings, and general questions."""
    return {
        "perception": perception_part(lake, recipe.pins, shares.perception),
        "video": video_part(lake, recipe.pins, shares.video),
        "general": general_part(lake, recipe.pins, shares.general),
    }


def general_part(lake: Lake, pins: Mapping[str, int], share: float) -> MixturePart:
    """Return the general questions. If their share is 0, the lake is not queried."""
    return MixturePart(ask(lake, "general_weights", pins if share else {}), "general_samples", share)


def video_part(lake: Lake, pins: Mapping[str, int], share: float) -> MixturePart:
    """Return the questions about recordings. If their share is 0, the lake is not queried."""
    return MixturePart(ask(lake, "video_weights", pins if share else {}), "video_samples", share)


def perception_part(lake: Lake, pins: Mapping[str, int], share: float) -> MixturePart:
    """Return the perception data. If its share is 0, the lake is not queried."""
    weighed = ask(lake, "perception_weights", pins if share else {})
    return MixturePart(weighed, "perception_samples", share)


def write_mixture(
    path: Path,
    parts: Sequence[MixturePart],
    count: int,
    seed: int,
    lake: Lake,
    pins: Mapping[str, int],
    rule: ContextRule,
    sliced: bool = False,
) -> set[str]:
    """Write the samples at the positions [0, count) of a training, and return the sha256 of their screenshots.

    A step has the screens that `rule` shows. If `sliced`, all replies of a slice have its positions.
    """
    parts = [part for part in parts if part.share and part.usable]
    keys = [_keys(part.weighed, rule) if sliced and part.steps else None for part in parts]
    come = drawn([part.weighed for part in parts], count, seed, [part.share for part in parts], keys)
    return write_sample_batches(path, _batches(path, list(zip(parts, come, strict=True)), lake, pins, rule))


def _keys(weighed: pa.Table, rule: ContextRule) -> list[Hashable | None]:
    """Return the slice of each row of steps that can occur; None for a screen of a failure."""
    columns = (weighed[name].to_pylist() for name in ("trajectory_id", "place", "grounding", "weight"))
    return [
        None if grounding else (trajectory, rule.folded(place + 1), weight)
        for trajectory, place, grounding, weight in zip(*columns, strict=True)
        if weight is not None
    ]


def _batches(
    path: Path,
    come: Sequence[tuple[MixturePart, pa.Table]],
    lake: Lake,
    pins: Mapping[str, int],
    rule: ContextRule,
) -> Iterator[pa.RecordBatch]:
    for number, (part, rows) in enumerate(come):
        if part.steps:
            rows = rows.append_column("way", ways(part.weighed, rows["row"].to_numpy()))
            shown = [rule.shown(place + 1) for place in rows["place"].to_pylist()]
            rows = rows.append_column("shown", pa.array(shown, pa.int64()))
        named = path.with_name(f"drawn-{number}.parquet")
        pq.write_table(rows, named)
        with stream(lake, part.query, pins, drawn=str(named), **part.parameters) as batches:
            yield from batches


def drawn(
    weighed: Sequence[pa.Table],
    count: int,
    seed: int,
    shares: Sequence[float] = (1.0,),
    keys: Sequence[Sequence[Hashable | None] | None] | None = None,
) -> list[pa.Table]:
    """Return the rows of every part that occur at the positions [0, count) of a training, in order.

    With `keys`, the slice of each row that can occur, a part is drawn by slices: each with the weight of one of its
    rows, so that every row occurs as often as without slices, in proportion to the other rows.

    Returns:
        For each part: its rows with `sample` (a number from 0), `row` (the index among all rows), and `positions`.

    Raises:
        FlywheelError: no row has a weight above 0.
    """
    weights = [table["weight"].to_numpy().astype(np.float64) for table in weighed]
    usable = [np.flatnonzero(np.isfinite(one)) for one in weights]
    scaled = [one[rows] for one, rows in zip(weights, usable, strict=True)]
    if len(scaled) > 1:
        scaled = [share * one / one.sum() for share, one in zip(shares, scaled, strict=True)]
    cut = [_cut(len(rows), own) for rows, own in zip(usable, keys or [None] * len(usable), strict=True)]
    try:
        once = [one[first] for one, (first, _) in zip(scaled, cut, strict=True)]
        sampler = Sampler(np.concatenate([np.empty(0), *once]), seed)
    except ValueError as error:
        raise FlywheelError(
            f"Nothing to train on: {error}.", "Look at train.practice and train.task_balance."
        ) from error
    ids, starts, positions = by_sample(sampler.first(count))
    edges = np.cumsum([0, *(len(first) for first, _ in cut)])
    found: list[pa.Table] = []
    for table, rows, (_, of), first, last in zip(weighed, usable, cut, edges[:-1], edges[1:], strict=True):
        low, high = np.searchsorted(ids, [first, last])
        there = np.isin(of + first, ids[low:high])
        own, at = rows[there], np.searchsorted(ids, of[there] + first)
        come = table.take(pa.array(own))
        lengths = starts[at + 1] - starts[at]
        offsets = np.cumsum([0, *lengths])
        times = positions[np.repeat(starts[at] - offsets[:-1], lengths) + np.arange(offsets[-1])]
        more = {
            "sample": pa.array(np.arange(len(own))),
            "row": pa.array(own),
            "positions": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(times)),
        }
        found.append(pa.table({**{name: come[name] for name in come.column_names}, **more}))
    return found


def _cut(count: int, keys: Sequence[Hashable | None] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each slice, and the slice of each of `count` rows; without keys, a row is a slice."""
    if keys is None:
        return np.arange(count), np.arange(count)
    made, of = slices_of(keys), np.empty(count, dtype=np.int64)
    for number, rows in enumerate(made):
        of[rows] = number
    return np.array([rows[0] for rows in made], dtype=np.int64), of


def ways(weighed: pa.Table, rows: np.ndarray) -> pa.ListArray:
    """Return, for each of these rows, the rows of the steps that lead to it, and the row itself as the last."""
    steps, places = weighed["step"].to_numpy(), weighed["place"].to_numpy()[rows]
    return pa.array(
        [steps[row - place : row + 1] for row, place in zip(rows, places, strict=True)], pa.list_(pa.int32())
    )
