"""Define the four parts: their arms, and the bars of their rows."""

import json
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from apps.commands.capacity import planned
from benchmarks.gpu._device import Row
from benchmarks.gpu.real.arms import FULL, MEASURED, Arm
from benchmarks.gpu.real.scale import Device
from benchmarks.harness import Bar
from benchmarks.trl.running import command_of, trl_python
from benchmarks.trl.workload import Scale, Workload
from schemas.config import load_config

PARTS = {"sft": "3b", "generation": "3b", "grpo": "3b", "lora": "7b"}
"""Parts in the order in which they run, and the geometry of each."""
WORKS = {"sft": "sft mixed", "grpo": "grpo", "lora": "sft mixed"}
CAP = "bf16 token_cap=8192"
"""The defaults of a training on a GPU, with the limit of a micro-batch of configs/gpu.toml."""
LORA = "lora.rank=16 memory.frozen=bfloat16"
LEAST = {
    "ours": 130.0, "ours again": 75.0, "trl defaults": 115.0, "trl bf16": 130.0, "generation": 70.0, "generate": 90.0,
}  # fmt: skip
"""Seconds on an H200 until the first counted step: imports, the model, compiling (once) and three steps of TRL's."""
LEAST_CPU = 10.0
FREE = 0.05
"""Share of the card that must stay free."""
MFU = {"H200": 0.45, "H100 80GB": 0.38}
"""Bars by a substring of the device's name."""
LORA_MFU = 0.40
OVER_DEFAULTS, OVER_BEST, OVER_GENERATE, OVER_LATER, OVER_TRL, OVER_BASELINE = 6.0, 2.5, 2.0, 4.0, 2.0, 3.0
ROUNDS = {"cuda": (6, 3), "cpu": (3, 2)}
"""Rounds of new screens, and of trajectories; the first two, or the first one, do not count."""


def arms_of(part: str, folder: Path, works: Sequence[Workload], scale: Scale, short: bool) -> list[Arm]:
    """Return the arms of a part in the order in which they run: the most important ones first."""
    device = scale.device
    if part == "generation":
        return _generation(folder, scale, short)
    if part == "sft":
        settings = {
            "ours": CAP,
            "trl defaults": "defaults",
            "ours auto": "bf16 token_cap=auto",
            "trl bf16": "bf16",
            "ours 1x80": _planned(folder / "model", device),
        }
    elif part == "grpo":
        small = f"{CAP} memory.moments=8bit activation_checkpointing=true"
        settings = {"ours": CAP, "trl defaults": "defaults", "trl bf16": "bf16", "ours 1x80": small}
    else:
        settings = {
            "ours": f"{CAP} {LORA}",
            "ours auto": f"bf16 token_cap=auto {LORA}",
            "ours gpu.toml": f"{CAP} {LORA} memory.logits_chunk=512 activation_checkpointing=true",
        }
    python, missing = _trl(any(name.startswith("trl") for name in settings))
    arms, compiled = list[Arm](), False
    for name, setting in settings.items():
        side = name.partition(" ")[0]
        kind = name if side == "trl" else "ours again" if compiled else "ours"
        compiled = compiled or side == "ours"
        command = command_of(works[0], f"{side} {setting}", python)
        least = LEAST[kind] if device == "cuda" else LEAST_CPU
        arms.append(Arm(part, name, setting, command, device, least, scale.batch, missing if side == "trl" else ""))
    return arms


def _planned(model: Path, device: Device) -> str:
    """Return the setting that `flywheel plan` chooses for a card of 80 GB, with 8-bit moments."""
    plan = planned(load_config("laptop", ["train.memory.moments=8bit", f"train.device={device}"]), model, "1x80")
    return " ".join(["bf16 memory.moments=8bit", *(key.removeprefix("train.") for key in plan.knobs)])


def _trl(needed: bool) -> tuple[Path, str]:
    """Return TRL's Python, or why there is none."""
    try:
        python = trl_python() if needed else Path(sys.executable)
    except (CalledProcessError, OSError) as error:
        return Path(), f"TRL cannot be installed ({error})"
    return python, "" if shutil.which(python) else f"there is no {python}"


def _generation(folder: Path, scale: Scale, short: bool) -> list[Arm]:
    cuda, (first, later) = scale.device == "cuda", ROUNDS[scale.device]
    spec: dict[str, Any] = {
        "model": str(folder / "model"), "device": scale.device, "batch": scale.batch, "warm": 2,
        "size": scale.mixed[-1], "tokens": 64, "steps": 4 if cuda else 3, "prefix_mb": 8192 if cuda else 512,
    }  # fmt: skip
    arms = list[Arm]()
    for which, rounds in {"first": first, "later": later}.items():
        path = folder / f"{which}.json"
        path.write_text(json.dumps({**spec, "rounds": rounds - 1 if short and cuda else rounds}))
        for side in ("ours", "generate"):
            command = [sys.executable, "-m", "benchmarks.gpu.real.generation", str(path), side, which]
            least = LEAST["generation" if side == "ours" else side] if cuda else LEAST_CPU
            arms.append(Arm("generation", f"{side} {which}", "", command, scale.device, least, scale.batch))
    return arms


@dataclass(frozen=True, slots=True)
class Baseline:
    """The numbers of an earlier commit."""

    commit: str
    card: str
    rows: list[Row]

    @classmethod
    def of(cls, path: Path) -> "Baseline":
        """Read a file that `--keep` wrote."""
        content = json.loads(path.read_text())
        return cls(content["commit"], content["card"], content["rows"])

    def times(self, row: Row, card: str) -> float | None:
        """Return how many times as fast a row of ours is as the fastest of ours then; None on another card."""
        last = row["arm"].rpartition(" ")[2] if row["part"] == "generation" else ""
        before = [
            one["samples/s"]
            for one in self.rows
            if one["samples/s"]
            and one["part"] == row["part"]
            and one["arm"].startswith("ours")
            and one["arm"].endswith(last)
        ]
        comparable = card == self.card and row["arm"].startswith("ours") and row["samples/s"]
        return row["samples/s"] / max(before) if comparable and before else None


def bars_of(part: str, rows: Sequence[Row], card: str, baseline: Baseline) -> tuple[list[Bar], list[str]]:
    """Return the bars of a part on this card, and lines about bars that it does not have."""
    if part == "generation":
        return [
            Bar("generation: ours over generate", _over(rows, "ours first", "generate first"), OVER_GENERATE, "higher"),
            Bar(
                "generation: later steps, ours over generate",
                _over(rows, "ours later", "generate later"),
                OVER_LATER,
                "higher",
            ),
        ], []
    bars, lines, ours = list[Bar](), list[str](), fastest(rows, "ours")
    if part == "sft":
        bars += [
            Bar("sft: ours over TRL's defaults", _over(rows, "ours", "trl defaults"), OVER_DEFAULTS, "higher"),
            Bar("sft: ours over TRL's best", _over(rows, "ours", "trl"), OVER_BEST, "higher"),
        ]
    if part == "grpo":
        bars.append(Bar("grpo: ours over TRL", _over(rows, "ours", "trl"), OVER_TRL, "higher"))
        times = math.nan if ours is None else baseline.times(ours, card)
        if times is None:
            lines.append(f"grpo: no bar over commit {baseline.commit}, whose numbers are of {baseline.card}.")
        else:
            bars.append(Bar(f"grpo: ours over commit {baseline.commit}", times, OVER_BASELINE, "higher"))
        return bars, lines
    least = mfu_bar(card)
    if least is None:
        lines.append(f"{part}: no bar for the MFU of {card}; there are bars for {' and '.join(MFU)}.")
    else:
        reached = math.nan if ours is None or ours["MFU"] is None else ours["MFU"]
        bars.append(Bar(f"{part}: MFU", reached, least if part == "sft" else LORA_MFU, "higher"))
    free = math.nan if ours is None or ours["free"] is None else ours["free"]
    bars.append(Bar(f"{part}: free share of the card", free, FREE, "higher"))
    return bars, lines


def mfu_bar(card: str) -> float | None:
    """Return the bar of the MFU of full training by the device's name; None for other cards and parts of cards."""
    return next((bar for name, bar in MFU.items() if name in card and "MIG" not in card), None)


def fastest(rows: Sequence[Row], side: str) -> Row | None:
    """Return the fastest measured arm whose name begins so; of ours, one that leaves enough memory, if one does."""
    measured = [row for row in rows if row["arm"].startswith(side) and row["state"] == MEASURED]
    roomy = [row for row in measured if row["free"] is None or row["free"] >= FREE] if side == "ours" else []
    return max(roomy or measured, key=lambda row: row["samples/s"], default=None)


def _over(rows: Sequence[Row], side: str, other: str) -> float:
    """Return how many times as fast ours is; infinite if no setting of the other fits the memory.

    No number, which misses each bar, if ours was not measured, or if an arm of the other was not tried to its end.
    """
    ours, theirs = fastest(rows, side), fastest(rows, other)
    if ours is None or not all(row["state"] in (MEASURED, FULL) for row in rows if row["arm"].startswith(other)):
        return math.nan
    return math.inf if theirs is None else ours["samples/s"] / theirs["samples/s"]
