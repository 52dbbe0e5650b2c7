"""Measure how long a checkpoint blocks a training on one GPU, with ours and with DCP's own saves.

All in one run, in turn, each to a folder of its own on this machine's disk; medians. `--device cpu`: a tiny state.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from benchmarks.gpu._device import Row, device_name, run
from benchmarks.harness import Bar
from learning.checkpoint import Checkpoints

GIB = {"cuda": 8.0, "cpu": 0.02}
TENSORS = 48


def state_of(device: str, gib: float) -> dict[str, Tensor]:
    """fp32 tensors of so many GiB in all."""
    rows = max(1, int(gib * 2**30 / 4 / TENSORS / 1024))
    return {f"model.{number}": torch.randn(rows, 1024, device=device) for number in range(TENSORS)}


def stalls(state: dict[str, Tensor], folder: Path, repeats: int) -> dict[str, list[float]]:
    """Blocking milliseconds of every save, by arm; the first of each is not counted."""
    ours = Checkpoints(folder / "ours", keep=1)
    waiting: list[Any] = []

    def save_ours(number: int) -> None:
        ours.save(state, number)

    def save_stock(number: int) -> None:
        dcp_save(dict(state), checkpoint_id=folder / f"stock-{number}", no_dist=True)

    def save_behind(number: int) -> None:
        waiting.append(async_save(dict(state), checkpoint_id=folder / f"behind-{number}"))

    arms: dict[str, Callable[[int], None]] = {"ours": save_ours, "dcp.save": save_stock, "dcp.async_save": save_behind}
    found: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(repeats + 1):
        for name, save in arms.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            started = time.perf_counter()
            save(number)
            taken = 1000 * (time.perf_counter() - started)
            ours.wait()
            while waiting:
                waiting.pop().result()
            if number:
                found[name].append(taken)
        for path in (*folder.glob("stock-*"), *folder.glob("behind-*")):
            shutil.rmtree(path)
    ours.close()
    return found


def measure(options: argparse.Namespace) -> tuple[list[Row], list[Bar]]:
    """Return the rows and the bars."""
    gib = GIB[options.device] / (2 if options.short else 1)
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if options.device == "cuda" else "gloo", store=store, rank=0, world_size=1
    )
    with tempfile.TemporaryDirectory() as name:
        found = stalls(state_of(options.device, gib), Path(name), 3)
    dist.destroy_process_group()
    rows = [
        {"device": device_name(options.device), "gib": gib, "arm": arm, "blocking_ms": median(taken)}
        for arm, taken in found.items()
    ]
    middle = {arm: median(taken) for arm, taken in found.items()}
    bars = list[Bar]()
    if options.device == "cuda":
        bars = [Bar(f"{arm} / ours, blocking", middle[arm] / middle["ours"], 1.0, "higher") for arm in list(middle)[1:]]
    return rows, bars


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", measure))
