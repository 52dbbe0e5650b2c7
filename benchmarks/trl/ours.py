"""Time the steps of our trainer: `python -m benchmarks.trl.ours JOB.json "bf16|fp32 [checkpointing]"`."""

import json
import sys
import time
from pathlib import Path

import torch

from benchmarks.trl.peak import peak_mib
from learning.algorithms.method import method_of
from learning.engines.choice import engine_of
from learning.engines.engine import SampleRef
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import Job
from learning.learner import Learner

PRECISION = {"bf16": "bfloat16", "fp32": "float32"}


def main() -> None:
    """Train on every sample once, in order, and print the numbers."""
    path, setting = sys.argv[1:]
    job = Job.model_validate_json(Path(path).read_text())
    precision, _, more = setting.partition(" ")
    train = {"precision": PRECISION[precision], "activation_checkpointing": more == "checkpointing"}
    job = job.model_copy(update={"train": job.train.model_copy(update=train)})
    samples = method_of(job.train).read(job.samples)
    engine = engine_of(job, 0, 1)
    assert isinstance(engine, FsdpEngine)
    begun = time.perf_counter()
    learner = Learner(job, samples, 0, 1, engine)
    batch, losses = job.train.batch, list[float]()
    refs = [SampleRef(at, at) for at in range(len(samples))]
    prepared = learner.prepare(refs[:batch])
    for step in range(job.steps):
        here, ahead = prepared, refs[(step + 1) * batch : (step + 2) * batch]
        prepared = learner.prepare(ahead) if ahead else None
        losses.append(float(learner.step(here, job.learning_rate).loss))
    seconds = time.perf_counter() - begun
    learner.close()
    numbers = {"samples/s": len(samples) / seconds, "first loss": losses[0], "peak MiB": peak_mib()}
    print(json.dumps(numbers))


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
