"""A model of real size on one GPU: our trainer beside TRL's, for supervised training and for GRPO.

`python -m benchmarks.gpu.real [--short] [--device cpu] --json PATH`

The geometry is Qwen2.5-VL-3B's with random weights, with as many of its 36 language layers as leave a fifth of the
GPU's memory free beside 16 bytes a weight (fp32 weights, gradients and both moments, on both sides). Supervised samples
show up to two screens of up to 1280 x 800 after up to nine steps. For GRPO each prompt is answered eight times with 64
tokens, by the local model in batches here and by TRL's trainer itself there, without a server on either side; ours
answers with the weights at the start, as an iteration does, and TRL with those of each step. Both see the same prompts
and reward the same tokens alike. Every run is a process of its own, timed from the first batch to the last update; ours
and TRL's take turns. Operations are what forward and backward passes of the trained tokens need, whatever is computed
again and however answers are made. A setting that does not fit the memory stands in the table as such.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.gpu._device import chosen, device_name
from benchmarks.shared.report import Bar, finish
from benchmarks.shared.trl_arms.running import run, trl_python
from benchmarks.shared.trl_arms.workload import SMALL, Scale, Workload, write_workload
from learning.engines.fsdp.costs import peak_of

WORKS = ("sft mixed", "grpo")
ARMS = ("ours bf16", "trl defaults", "ours bf16 checkpointing", "trl bf16")
GEOMETRY: dict[str, Any] = {
    "kind": "qwen2_5_vl", "hidden": 2048, "heads": 16, "kv_heads": 2, "head_width": 128, "intermediate": 11008,
    "vision_hidden": 1280, "vision_layers": 32, "vision_heads": 16, "vision_intermediate": 3420, "vocabulary": 151_936,
}  # fmt: skip
LAYERS = 36
BYTES, FREE = 16, 0.2
SCREENS = ((640, 480), (1024, 640), (1280, 800))
ROUNDS = 3
NUMBERS = ("samples/s", "first loss", "peak MiB")
OF_OURS = ("tokens a sample", "operations a sample")
Row = dict[str, Any]


def main() -> int:
    """Prints a row per work and arm; exit code 1 if a bar is missed."""
    options = chosen(__doc__ or "")
    if options is None:
        return 0
    python = trl_python()
    with TemporaryDirectory(prefix="flywheel-real-") as folder:
        works = write_workload(Path(folder), WORKS, scale_of(options.device, options.short))
        runs = [
            one
            for number in range(1 if options.short else ROUNDS)
            for work in works
            for arm in (ARMS if number % 2 == 0 else reversed(ARMS))
            if (one := _tried(work, arm, python)) is not None
        ]
    peak = peak_of(device_name(options.device))
    rows = [row for work in WORKS for row in _rows(runs, work, peak)]
    bars = [_bar(rows, work) for work in WORKS] if options.device == "cuda" else []
    return finish("gpu real", rows, bars, options.json)


def scale_of(device: str, short: bool) -> Scale:
    """A tiny setting on a CPU; on a GPU as many layers as fit."""
    if device == "cpu":
        return Scale(dict(SMALL), steps=1, batch=4, group=2)
    layers = layers_for(torch.cuda.get_device_properties(0).total_memory)
    model = {**GEOMETRY, "layers": layers}
    return Scale(model, "cuda", batch=16, steps=3 if short else 8, mixed=SCREENS, group=8, train={"token_cap": 8192})


def layers_for(memory: int) -> int:
    """How many of the language layers fit so many bytes.

    Raises:
        ValueError: not even one does.
    """
    width, inner, seen = GEOMETRY["hidden"], GEOMETRY["intermediate"], GEOMETRY["vision_hidden"]
    keys = GEOMETRY["kv_heads"] * GEOMETRY["head_width"]
    layer = 2 * width * width + 2 * width * keys + 3 * width * inner
    beside = 2 * GEOMETRY["vocabulary"] * width
    beside += GEOMETRY["vision_layers"] * (4 * seen * seen + 3 * seen * GEOMETRY["vision_intermediate"])
    beside += 4 * seen * (4 * seen + width)  # the merger
    layers = int((memory * (1 - FREE) / BYTES - beside) // layer)
    if layers < 1:
        raise ValueError(f"a GPU of {memory / 2**30:.0f} GiB is too small for this geometry, whatever its layers.")
    return min(LAYERS, layers)


def _tried(work: Workload, arm: str, python: Path) -> Row | None:
    """One run; None for one that the GPU's memory does not hold."""
    print(f"{work.name}, {arm}", file=sys.stderr, flush=True)
    try:
        return {"work": work.name, "arm": arm, **run(work, arm, python, 3600.0)}
    except RuntimeError as error:
        if "OutOfMemoryError" not in str(error):
            raise
        return None


def _rows(runs: Sequence[Row], work: str, peak: float | None) -> list[Row]:
    """The medians of every arm; tokens and operations of TRL's are ours, since the samples are."""
    mine = [one for one in runs if one["work"] == work]
    ours = next((one for one in mine if OF_OURS[0] in one), None)
    rows = list[Row]()
    for arm in ARMS:
        own = [one for one in mine if one["arm"] == arm]
        row: Row = {"work": work, "arm": arm, "fits": bool(own)}
        row |= {name: median(one[name] for one in own) if own else None for name in NUMBERS}
        if own and ours:
            tokens, operations = (ours[name] * row["samples/s"] for name in OF_OURS)
            row |= {"tokens/s": tokens, "MFU": operations / peak if peak else None}
        rows.append(row)
    return rows


def _bar(rows: Sequence[Row], work: str) -> Bar:
    """Our faster setting over TRL's; 0 where none of ours fits."""
    best = {
        side: max(row["samples/s"] or 0.0 for row in rows if row["work"] == work and row["arm"].startswith(side))
        for side in ("ours", "trl")
    }
    ratio = best["ours"] / best["trl"] if best["trl"] else float(best["ours"] > 0)
    return Bar(f"{work}: ours over TRL, samples/s", ratio, 1.0, "higher")


if __name__ == "__main__":
    raise SystemExit(main())
