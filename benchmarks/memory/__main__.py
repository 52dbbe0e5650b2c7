"""What a training holds at most, by recipe: measured on gloo ranks with a model of 100 million weights, beside what the
memory model predicts.

Every row is a training of its own, of two steps, on this machine's CPU. `peak` is the kernel's count of the process
that held most, less what it holds after a training of a tiny model (`benchmarks.memory.ranks`); memory that is
free goes back to the system at once (`MALLOC_*`). `loaded` is the peak until the weights are in place, pages of
files included, `read_whole` the same where every process reads all of them, as it did before; `wrote` is the peak of
writing the directory afterwards. `beside_shard` leaves out this process's share of the weights themselves. Bytes are
per weight of the model and process.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.shared.mixed_samples import NAMES, mixed_job, mixed_samples
from benchmarks.shared.mixed_samples import SIZES as SCREENS
from benchmarks.shared.report import Bar, finish, options
from models.random_vlm import Kind, build_random
from schemas.config.training import TrainConfig

RANKS = 4
LORA = {"rank": 8}
HALF = {"frozen": "bfloat16"}
FOUR = {"frozen": "nf4"}
EIGHT = {"moments": "8bit"}
TWICE = {"activation_checkpointing": True}
LONG, SHORT = 8, 4
"""Samples of a step: two for each rank, of many screens, or one, of small ones."""
RECIPES: dict[str, tuple[int, dict[str, Any]]] = {
    "all weights": (LONG, {}),
    "all weights, activations twice": (SHORT, TWICE),
    "all weights, 8-bit moments, activations twice": (SHORT, {**TWICE, "memory": EIGHT}),
    "all weights, activations twice, logits in chunks": (LONG, {**TWICE, "memory": {"logits_chunk": 8}}),
    "all but a bf16 vision tower, activations twice": (SHORT, {**TWICE, "memory": {"freeze_vision": True, **HALF}}),
    "adapters, activations twice": (SHORT, {**TWICE, "lora": LORA}),
    "adapters, bf16 beside them, activations twice": (SHORT, {**TWICE, "lora": LORA, "memory": HALF}),
    "adapters, 4 bits beside them, activations twice": (SHORT, {**TWICE, "lora": LORA, "memory": FOUR}),
    "adapters, bf16 beside them": (LONG, {"lora": LORA, "memory": HALF}),
}
MIXTURES: dict[str, tuple[int, dict[str, Any]]] = {
    "mixture, activations twice": (SHORT, TWICE),
    "mixture, experts parallel, activations twice": (SHORT, {**TWICE, "experts": {"parallel": True}}),
}
FULL, ADAPTED = "all weights, activations twice", "adapters, bf16 beside them, activations twice"
"""The rows that the bars per weight are held to."""
SIZES_OF = {LONG: SCREENS, SHORT: SCREENS[:1]}
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
SIZES: dict[str, int] = {
    "hidden": 768, "layers": 16, "heads": 12, "kv_heads": 4, "head_width": 64,
    "vision_hidden": 384, "vision_layers": 4, "vocabulary": 4096,
}  # fmt: skip
"""Of 100 million weights, an eighth of them outside of blocks, as in a model of seven billion."""
MIXTURE = {**SIZES, "layers": 10}
"""Of 100 million weights too, 70 million of them experts'."""


def measured(folder: Path, batch: int, train: dict[str, Any]) -> list[dict[str, Any]]:
    """What each rank of a training held."""
    config = TrainConfig.model_validate({"batch": batch, "processes": RANKS, "device": "cpu", **train})
    samples = mixed_samples(batch, 0, SIZES_OF[batch])
    job = mixed_job(folder, samples, 2, 1e-5, config)
    (folder / "job.json").write_text(job.model_dump_json())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    command += ["-m", "benchmarks.memory.ranks", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **MALLOC})
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads((folder / "measured.json").read_text())


def row_of(name: str, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of the table: of the rank that held most."""
    worst = max(ranks, key=lambda one: one["peak"])
    weights = worst["weights"]
    return {
        "recipe": name,
        "tokens": sum(work[0] for work in worst["work"]),
        "read_whole": max(one["read_whole"] for one in ranks) / weights,
        "loaded": max(one["loaded"] for one in ranks) / weights,
        "peak": worst["peak"] / weights,
        "beside_shard": (worst["peak"] - worst["shard"]) / weights,
        "wrote": max(one["wrote"] for one in ranks) / weights,
        "predicted": worst["predicted"] / weights,
        "off": worst["predicted"] / worst["peak"] - 1,
        "moment": worst["moment"],
        "parts": {part: size / weights for part, size in worst["parts"].items()},
        "work": worst["work"],
    }


def rows_of(
    folder: Path, kind: Kind, sizes: dict[str, int], recipes: dict[str, tuple[int, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The rows of a model, which is made in `folder`."""
    texts = [f'Click on the "{name}" button.' for name in NAMES] * 8
    build_random(kind, texts, 0, folder / "model", **sizes)
    build_random(kind, texts, 0, folder / "tiny")
    return [row_of(recipe, measured(folder, *how)) for recipe, how in recipes.items()]


def main() -> int:
    """Prints the table; exit code 1 if a bar is missed."""
    chosen = options(__doc__ or "")
    recipes = {name: RECIPES[name] for name in ((FULL, ADAPTED) if chosen.short else RECIPES)}
    with tempfile.TemporaryDirectory() as name:
        rows = rows_of(Path(name) / "dense", "qwen3_vl", SIZES, recipes)
        if not chosen.short:
            rows += rows_of(Path(name) / "mixture", "qwen3_vl_moe", MIXTURE, MIXTURES)
    return finish("memory: bytes per weight and process", rows, bars_of(rows), chosen.json)


def bars_of(rows: list[dict[str, Any]]) -> list[Bar]:
    """What must hold."""
    by_name = {row["recipe"]: row for row in rows}
    return [
        Bar(f"bytes per weight and rank of {RANKS}: {FULL}", by_name[FULL]["peak"], 6.0, "lower"),
        Bar(f"the same beside the shard: {ADAPTED}", by_name[ADAPTED]["beside_shard"], 2.5, "lower"),
        Bar("prediction, furthest from what was measured", max(abs(row["off"]) for row in rows), 0.1, "lower"),
        Bar("loading, most of a recipe / of reading whole",
            max(row["loaded"] / row["read_whole"] for row in rows), 1.0, "lower"),
    ]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
