"""Measure the trainer's step on one GPU: tokens and samples per second, memory, and the parts of its time.

Learner, planner and encoder are the trainer's, on samples of up to six screens of up to 1280 x 800 pixels. A batch is
planned and its screens are decoded one step ahead, in one thread; `waiting` is the time that the GPU waits for it.
Operations are the cost model's: those of forward and backward, without the repeated ones of activation checkpointing.
`--device cpu`: a tiny setting, to try it.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.gpu._device import SIZES as MODELS
from benchmarks.gpu._device import Row, device_name, run
from benchmarks.gpu.mixed_samples import NAMES, SIZES, mixed_job, mixed_samples
from benchmarks.harness import Bar
from learning.data.sample import TrainSample
from learning.engines.engine import SampleRef
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import Job
from learning.learner import Learner
from models.random_vlm import build_random
from schemas.config.training import TrainConfig

SCREENS = {"cuda": ((640, 480), (1024, 640), (1280, 800)), "cpu": SIZES}
BATCH = {"cuda": 16, "cpu": 4}
STEPS = {"cuda": 12, "cpu": 2}
WARM = 2
"""Steps that are not counted."""


def job_of(folder: Path, device: str, count: int, **train: Any) -> tuple[Job, list[TrainSample]]:
    """A training of a random model on mixed samples."""
    if not (folder / "model").exists():
        texts = [f'Click on the "{name}" button.' for name in NAMES] * 8
        build_random("qwen3_vl", texts, 0, folder / "model", **MODELS[device])
    samples, pngs = mixed_samples(count, 0, SCREENS[device])
    config = TrainConfig(batch=BATCH[device], processes=1, device="cuda" if device == "cuda" else "cpu", **train)
    return mixed_job(folder, (samples, pngs), count // BATCH[device], 1e-5, config), samples


def steps(learner: Learner, engine: FsdpEngine, count: int, size: int) -> dict[str, float]:
    """Seconds of the counted steps, by what they are spent on."""
    spent = {"waiting": 0.0, "gradient": 0.0, "update": 0.0}

    def clock() -> float:
        if engine.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    refs = [[SampleRef(at, at) for at in range(step * size, (step + 1) * size)] for step in range(count)]
    ahead = learner.prepare(refs[0])
    for step in range(count):
        began, current = clock(), ahead
        if step + 1 < count:
            ahead = learner.prepare(refs[step + 1])
        batch = engine.ready(current)
        ready = clock()
        learner.gradient(batch)
        middle = clock()
        engine.update(1e-5)
        ended = clock()
        if step >= WARM:
            spent["waiting"] += ready - began
            spent["gradient"] += middle - ready
            spent["update"] += ended - middle
    return spent


def measured(job: Job, samples: list[TrainSample], arm: str) -> dict[str, Any]:
    """A row of the table."""
    size, count = job.train.batch, job.steps
    engine = FsdpEngine(job, 0, 1)
    learner = Learner(job, samples, 0, 1, engine)
    cuda = engine.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    spent = steps(learner, engine, count, size)
    items = engine.items[WARM * size :]
    patches = [screen.patches for item in items for screen in item.screens]
    tokens = [item.tokens for item in items]
    work = 6 * sum(float(engine.shape.language.of(one)) for one in tokens)
    work += 6 * sum(float(engine.shape.vision.of(one)) for one in patches)
    seconds = sum(spent.values())
    learner.close()
    dist.destroy_process_group()
    return {
        "device": device_name(engine.device.type),
        "arm": arm,
        "weights": engine.shape.weights,
        "samples_per_s": len(items) / seconds,
        "tokens_per_s": sum(tokens) / seconds,
        "step_ms": 1000 * seconds / (count - WARM),
        **{name: one / seconds for name, one in spent.items()},
        "tflops": work / seconds / 1e12,
        "tflops_while_computing": work / spent["gradient"] / 1e12,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0,
    }


def measure(options: argparse.Namespace) -> tuple[list[Row], list[Bar]]:
    """Return the rows and the bars."""
    device = options.device
    cap = {"token_cap": 8192} if device == "cuda" else {}
    twice = cap | {"activation_checkpointing": True}
    arms: dict[str, dict[str, Any]] = {"plain": cap, "activation checkpointing": twice}
    count = (WARM + (STEPS[device] // 2 if options.short else STEPS[device])) * BATCH[device]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for arm, train in arms.items():
            job, samples = job_of(Path(folder), device, count, **train)
            rows.append(measured(job, samples, arm))
            if device == "cuda":
                torch.cuda.empty_cache()
    bars = [Bar("share of a step spent waiting, plain", rows[0]["waiting"], 0.1, "lower")] if device == "cuda" else []
    return rows, bars


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", measure))
