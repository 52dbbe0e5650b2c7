"""Select the data of supervised and continual training from all iterations, and mix its kinds in one file.

The lake has the samples and their weights, and `learning.data.rounds` computes the order. Only samples that occur in
the training are read in full: at most S x B samples for S steps with B samples each.

The module also defines the results of trainings, and of streamed trainings, which the stage `collect` stores for the
stage `train`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from schemas.config import Config
from schemas.failure import FlywheelError
from schemas.table import Metrics
from schemas.tables.stage import PlainResult
from storage.catalog import ask, stream
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe, TrainingMaterial, seed_of
from tasks.shared.policies import measured_ancestor


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
    """Return all accepted data, screens of failures for grounding, and perception data."""
    weighed = weighed_targets(config, lake, measured_ancestor(lake, recipe.parent).policy_version, recipe.pins)
    usable = weighed["grounding"].filter(weighed["weight"].is_valid()).to_numpy()
    screens, targets = int(usable.sum()), int((~usable).sum())
    share = config.train.perception
    perceived = perception_part(lake, recipe.pins, share)
    steps = MixturePart(weighed, "training_samples", 1 - share, steps=True, parameters=_reported(config))
    numbers = {"samples": targets, "grounding_screens": screens}
    summary = f"{targets} accepted trajectory steps"
    if share:
        numbers |= {"perception": perceived.usable}
        summary += f", {perceived.usable} perception samples"
    return TrainingMaterial(
        write=_writer(config, lake, recipe, [steps, perceived]),
        samples=targets + screens + (perceived.usable if share else 0),
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
        history_images=config.policy.history_images,
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
    """Return data of the failed trajectories of all iterations, and perception data.

    The data of a failed trajectory is relabelled samples, or the trajectory's own steps (`train.ct.form`).
    """
    ct = config.train.ct
    failed, kinds = (_relabelled if ct.form == "relabelled" else _trajectories)(config, lake, recipe)
    perceived = perception_part(lake, recipe.pins, ct.perception)
    if ct.perception:
        kinds |= {"perception": perceived.usable}
    parts = [part for part in (failed, perceived) if part.share]
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
    return MixturePart(weighed, "continual_samples", 1 - config.train.ct.perception), dict(sorted(counts.items()))


def _trajectories(config: Config, lake: Lake, recipe: PolicyRecipe) -> tuple[MixturePart, dict[str, int]]:
    """Return the own steps of failed trajectories as targets."""
    weighed = ask(lake, "continual_step_weights", recipe.pins)
    share = 1 - config.train.ct.perception
    part = MixturePart(weighed, "training_samples", share, steps=True, parameters=_reported(config))
    return part, {"failed_steps": part.usable}


def _reported(config: Config) -> Mapping[str, int | float | bool]:
    """Return the numbers of a step's context settings: screens and thoughts."""
    return {
        "history_images": config.policy.history_images,
        "thoughts": config.policy.thoughts,
        "without": config.think.keep_without,
    }


def _writer(config: Config, lake: Lake, recipe: PolicyRecipe, parts: Sequence[MixturePart]) -> Any:
    seed, pins = seed_of(config, recipe), recipe.pins
    return lambda path, schedule: write_mixture(path, parts, schedule.positions, seed, lake, pins)


def perception_part(lake: Lake, pins: Mapping[str, int], share: float) -> MixturePart:
    """Return the perception data. If its share is 0, the lake is not queried."""
    weighed = ask(lake, "perception_weights", pins if share else {})
    return MixturePart(weighed, "perception_samples", share)


def write_mixture(
    path: Path, parts: Sequence[MixturePart], count: int, seed: int, lake: Lake, pins: Mapping[str, int]
) -> set[str]:
    """Write the samples at the positions [0, count) of a training, and return the sha256 of their screenshots."""
    parts = [part for part in parts if part.share and part.usable]
    come = drawn([part.weighed for part in parts], count, seed, [part.share for part in parts])
    return write_sample_batches(path, _batches(path, list(zip(parts, come, strict=True)), lake, pins))


def _batches(
    path: Path, come: Sequence[tuple[MixturePart, pa.Table]], lake: Lake, pins: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    for number, (part, rows) in enumerate(come):
        if part.steps:
            rows = rows.append_column("way", ways(part.weighed, rows["row"].to_numpy()))
        named = path.with_name(f"drawn-{number}.parquet")
        pq.write_table(rows, named)
        with stream(lake, part.query, pins, drawn=str(named), **part.parameters) as batches:
            yield from batches


def drawn(weighed: Sequence[pa.Table], count: int, seed: int, shares: Sequence[float] = (1.0,)) -> list[pa.Table]:
    """Return the rows of every part that occur at the positions [0, count) of a training, in order.

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
    try:
        sampler = Sampler(np.concatenate([np.empty(0), *scaled]), seed)
    except ValueError as error:
        raise FlywheelError(
            f"Nothing to train on: {error}.", "Look at train.practice and train.task_balance."
        ) from error
    ids, starts, positions = by_sample(sampler.first(count))
    edges = np.cumsum([0, *(len(rows) for rows in usable)])
    found: list[pa.Table] = []
    for table, rows, first, last in zip(weighed, usable, edges[:-1], edges[1:], strict=True):
        low, high = np.searchsorted(ids, [first, last])
        own = rows[ids[low:high] - first]
        come = table.take(pa.array(own))
        offsets = pa.array(starts[low : high + 1] - starts[low], pa.int32())
        more = {
            "sample": pa.array(np.arange(len(own))),
            "row": pa.array(own),
            "positions": pa.ListArray.from_arrays(offsets, pa.array(positions[starts[low] : starts[high]])),
        }
        found.append(pa.table({**{name: come[name] for name in come.column_names}, **more}))
    return found


def ways(weighed: pa.Table, rows: np.ndarray) -> pa.ListArray:
    """Return, for each of these rows, the rows of the steps that lead to it, and the row itself as the last."""
    steps, places = weighed["step"].to_numpy(), weighed["place"].to_numpy()[rows]
    return pa.array(
        [steps[row - place : row + 1] for row, place in zip(rows, places, strict=True)], pa.list_(pa.int32())
    )
