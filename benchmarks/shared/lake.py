"""Lengths of a lake's own training samples, and a small lake to read when there is none.

The small lake is made by the explorer in the fake sandbox: it needs no browser, no model and a second or two. Its
screens are of one size, as MiniWoB++'s are, so its samples differ by their steps and texts alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from environments.catalog import catalog
from learning.planning.balance import Ints
from models.explorer import PageExplorer
from rollout.actor import Actor
from rollout.runner import roll_out_all
from rollout.trajectory import PlannedTrajectory
from schemas.config import Config
from schemas.config.load import config_of
from storage.lake import Lake
from tasks.collect.records import write
from tasks.running.console import bar

PATCH, MERGE = 14, 2
"""Pixels of a patch, and patches of a token's side: Qwen2.5-VL's."""
BYTES_A_TOKEN = 4
"""What a byte-pair vocabulary of that family takes for English and for actions, about."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Lengths of one training sample."""

    patches: int
    """Of one screen."""
    screens: int
    text: int
    """Tokens of instruction, history and reply."""

    @property
    def tokens(self) -> int:
        """What the language model reads."""
        return self.screens * self.patches // MERGE**2 + self.text


def make_small_lake(folder: Path, trajectories: int = 150) -> Lake:
    """A new lake with that many trajectories of every fake task by the explorer."""
    config = _config(folder, {"environments": {"fake": {"sandboxes": 8}}})
    lake = Lake.open(config.lake)
    planned = [
        PlannedTrajectory(
            lake_id=lake.lake_id,
            run_id=lake.lake_id,
            iteration=0,
            task=task,
            seed=seed,
            policy="explorer",
            policy_version=PageExplorer.version,
            temperature=1.0,
        )
        for task in catalog(config)
        for seed in range(trajectories)
    ]
    with Actor(PageExplorer()) as explorer:
        sink = lambda chunk: write(lake, chunk)  # noqa: E731
        roll_out_all(config, planned, lambda _: [explorer], sink, bar, "a small lake", for_data=True)
    return lake


def open_lake(uri: str) -> Lake:
    """The lake there; raises LakeError if there is none."""
    return Lake.open(_config(Path(uri), {}).lake, create=False)


def step_samples(lake: Lake, history_images: int) -> list[Sample]:
    """One sample per step, as the trainer makes them: the last screens, all past replies as text, the step's reply."""
    samples: list[Sample] = []
    for instruction, steps in _trajectories(lake):
        tokens = _tokens(instruction)
        for number, step in enumerate(steps):
            tokens += _tokens(step["thought"] or "") + _tokens(step["action"])
            samples.append(Sample(_patches(step), min(number + 1, history_images), tokens))
    return samples


def trajectory_samples(lake: Lake) -> list[Sample]:
    """One sample per trajectory with all of its screens, as long-context training would take it."""
    return [
        Sample(
            _patches(steps[0]),
            len(steps),
            _tokens(instruction) + sum(_tokens(step["thought"] or "") + _tokens(step["action"]) for step in steps),
        )
        for instruction, steps in _trajectories(lake)
    ]


def columns(samples: list[Sample]) -> tuple[Ints, Ints, Ints]:
    """Patches of a screen, screens, and language tokens of every sample."""
    found = [(sample.patches, sample.screens, sample.tokens) for sample in samples]
    patches, screens, tokens = np.array(found, dtype=np.int64).T
    return patches, screens, tokens


def _trajectories(lake: Lake) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    rows = lake.read("trajectories", ["trajectory_id", "instruction"]).to_pylist()
    wanted = ["trajectory_id", "step", "screen_width", "screen_height", "thought", "action"]
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in lake.read("steps", wanted).to_pylist():
        steps.setdefault(row["trajectory_id"], []).append(row)
    for row in sorted(rows, key=lambda row: row["trajectory_id"]):
        if row["trajectory_id"] in steps:
            yield row["instruction"], sorted(steps[row["trajectory_id"]], key=lambda step: step["step"])


def _patches(step: dict[str, Any]) -> int:
    block = PATCH * MERGE
    return -(-step["screen_height"] // block) * -(-step["screen_width"] // block) * MERGE**2


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_A_TOKEN)


def _config(folder: Path, more: dict[str, Any]) -> Config:
    suite = {"tasks": ["click-target", "two-steps", "enter-text"], "held_out": []} if more else {}
    return config_of({"lake": {"uri": str(folder)}, **more, **({"suite": suite} if suite else {})})
