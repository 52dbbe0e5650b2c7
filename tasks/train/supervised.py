"""What supervised and continual training read: samples, of all iterations.

Which there are and how often each is to come is asked of the lake; which comes when is arithmetic
(`learning.data.sampler`); and only those that come are read in full. A training of S steps with B samples each reads at
most S x B of them, however long the history is.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from environments.catalog import catalog
from learning.algorithms.method import Schedule
from learning.data.sample import write_sample_batches
from learning.data.sampler import Sampler, by_sample
from schemas.config import Config
from schemas.failure import FlywheelError
from storage.catalog import ask, stream
from storage.lake import Lake
from tasks.shared.material import Material, Recipe, seed_of
from tasks.shared.policies import measured_ancestor


def supervised(config: Config, lake: Lake, recipe: Recipe) -> Material:
    """Everything accepted so far, and screens of failures that teach grounding."""
    ancestor, shown = measured_ancestor(lake, recipe.parent).policy_version, config.policy.history_images
    weighed = ask(
        lake,
        "training_weights",
        recipe.pins,
        history_images=shown,
        measured=ancestor,
        balance=config.train.task_balance,
        floor=config.train.task_floor,
        grounding_share=config.train.grounding_share,
        practice=[task.task_id for task in catalog(config) if task.split == "practice"],
        practice_share=config.train.practice,
        prefixes=config.filter.prefixes,
        corrections=config.filter.corrections,
    )
    usable = weighed["grounding"].filter(weighed["weight"].is_valid()).to_numpy()
    screens, targets = int(usable.sum()), int((~usable).sum())

    def write(path: Path, schedule: Schedule) -> set[str]:
        come = drawn(weighed, schedule.positions, seed_of(config, recipe))
        come = come.append_column("way", ways(weighed, come["row"].to_numpy()))
        thoughts = {"thoughts": config.policy.thoughts, "without": config.think.keep_without}
        return write_drawn(path, come, lake, "training_samples", recipe.pins, history_images=shown, **thoughts)

    return Material(
        write=write,
        samples=targets + screens,
        numbers={"samples": targets, "grounding_screens": screens},
        summary=f"{targets} steps of accepted trajectories",
        nothing="" if targets else "no accepted trajectory yet",
    )


def continual_material(config: Config, lake: Lake, recipe: Recipe) -> Material:
    """What the failed trajectories of all iterations show, whatever they were meant for."""
    weighed = ask(lake, "continual_weights", recipe.pins)
    counts = Counter("grounding" if kind == "step" else kind for kind in weighed["kind"].to_pylist())
    kinds = dict(sorted(counts.items()))

    def write(path: Path, schedule: Schedule) -> set[str]:
        come = drawn(weighed, schedule.positions, seed_of(config, recipe))
        return write_drawn(path, come, lake, "continual_samples", recipe.pins)

    return Material(
        write=write,
        samples=weighed.num_rows,
        numbers={"samples": weighed.num_rows, "kinds": kinds},
        summary=", ".join(f"{kind} {count}" for kind, count in kinds.items()),
        nothing="" if weighed.num_rows else "no failed trajectory shows anything yet",
    )


def drawn(weighed: pa.Table, count: int, seed: int) -> pa.Table:
    """The rows that come at the positions [0, count) of a training, in order; a row without a weight never does.

    Returns:
        The rows with their `sample` (from 0), their `row` among all, and `positions`, when they come.

    Raises:
        FlywheelError: none has a weight above 0.
    """
    weights = weighed["weight"].to_numpy()
    usable = np.flatnonzero(np.isfinite(weights))
    try:
        ids, starts, positions = by_sample(Sampler(weights[usable], seed).first(count))
    except ValueError as error:
        raise FlywheelError(
            f"Nothing to train on: {error}.", "Look at train.practice and train.task_balance."
        ) from error
    rows = usable[ids]
    more = {
        "sample": pa.array(np.arange(len(rows))),
        "row": pa.array(rows),
        "positions": pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(positions)),
    }
    come = weighed.take(pa.array(rows))
    return pa.table({**{name: come[name] for name in come.column_names}, **more})


def ways(weighed: pa.Table, rows: np.ndarray) -> pa.ListArray:
    """The steps that lead to each of these rows, itself the last: those of its trajectory stand right before it."""
    steps, places = weighed["step"].to_numpy(), weighed["place"].to_numpy()[rows]
    return pa.array(
        [steps[row - place : row + 1] for row, place in zip(rows, places, strict=True)], pa.list_(pa.int32())
    )


def write_drawn(
    path: Path, come: pa.Table, lake: Lake, query: str, pins: Mapping[str, int], **parameters: Any
) -> set[str]:
    """Writes what a query tells of the rows that come; returns sha256 of the screenshots they show."""
    named = path.with_name("drawn.parquet")
    pq.write_table(come, named)
    with stream(lake, query, pins, drawn=str(named), **parameters) as batches:
        return write_sample_batches(path, batches)
