"""`python -m benchmarks.shared.trl_arms.ours JOB.json "bf16|fp32 [checkpointing]" GROUP`: our trainer's steps, timed.

Prints its numbers. With a group above 0 the samples are prompts: each is answered so often in batches by the local
model, as collection does without a server, and the answers are what is trained on, all by the weights at the start.
"""

import json
import sys
import time
from pathlib import Path

import torch

from benchmarks.shared.trl_arms.peak import peak_mib
from benchmarks.shared.trl_arms.reward import worth
from learning.algorithms.advantages import of_group
from learning.algorithms.method import method_of
from learning.data.rollouts import Rollout, write_rollouts
from learning.data.sample import Screenshots, read_samples
from learning.engines.choice import engine_of
from learning.engines.engine import SampleRef
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import Job
from learning.learner import Learner
from models.policy import Context
from models.vlm import VlmPolicy
from schemas.observation import Observation

PRECISION = {"bf16": "bfloat16", "fp32": "float32"}


def main() -> None:
    """Every sample once, in order."""
    path, setting, group = sys.argv[1:]
    job = Job.model_validate_json(Path(path).read_text())
    precision, _, more = setting.partition(" ")
    train = {"precision": PRECISION[precision], "activation_checkpointing": more == "checkpointing"}
    job = job.model_copy(update={"train": job.train.model_copy(update=train)})
    answering = 0.0
    if int(group):
        begun = time.perf_counter()
        samples = _answers(job, int(group))
        answering = time.perf_counter() - begun
        write_rollouts(path := job.samples.with_name("rollouts"), samples)
        job = job.model_copy(update={"samples": path, "train": job.train.model_copy(update={"method": "grpo"})})
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
    tokens = [item.tokens for item in engine.items]
    work = 6 * sum(float(engine.shape.language.of(one)) for one in tokens)
    work += 6 * sum(float(engine.shape.vision.of(screen.patches)) for item in engine.items for screen in item.screens)
    learner.close()
    numbers = {
        "samples/s": len(samples) / (seconds + answering), "first loss": losses[0], "peak MiB": peak_mib(),
        "answering s": answering, "training s": seconds,
        "tokens a sample": sum(tokens) / len(samples), "operations a sample": work / len(samples),
    }  # fmt: skip
    print(json.dumps(numbers))


def _answers(job: Job, group: int) -> list[Rollout]:
    """Every prompt answered so often, each group's answers against each other."""
    screenshots, contexts = Screenshots(job.screenshots), list[Context]()
    prompts = read_samples(job.samples)
    for sample in prompts:
        (digest,) = sample.screenshots
        seen = Observation(screenshots.png(digest), *screenshots.size(digest), sample.instruction)
        contexts += [Context(sample.instruction, (), seen, seed=len(contexts) + at) for at in range(group)]
    policy = VlmPolicy(job.parent, job.policy.model_copy(update={"batch": job.train.batch, "device": job.train.device}))
    made, found = policy.act(contexts, 1.0), list[Rollout]()
    for number, sample in enumerate(prompts):
        own = made[number * group : (number + 1) * group]
        gains = of_group([worth(one.token_ids) for one in own])
        found += [
            Rollout(
                f"{number}-{at}", 0, sample.task_id, sample.screenshots, sample.instruction, (), one.text,
                one.token_ids, one.logprobs, advantage=float(gain), group_id=str(number),
            )
            for at, (one, gain) in enumerate(zip(own, gains, strict=True))
        ]  # fmt: skip
    return found


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
