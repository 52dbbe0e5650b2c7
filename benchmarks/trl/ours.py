"""Time the steps of our trainer: `python -m benchmarks.trl.ours JOB.json "bf16|fp32 [KEY=VALUE ...]"`.

Keys are those of the section `train`, such as `token_cap=auto` or `memory.moments=8bit`. A job of the method `grpo` has
prompts as its samples: each step, the local generator answers them in the same process, the trainer makes a step of
these replies, and the new weights are copied into the generator.
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from benchmarks.trl.clock import Clock
from benchmarks.trl.reward import worth
from learning.algorithms.advantages import of_group
from learning.algorithms.method import method_of
from learning.data.files import Rollout
from learning.data.sample import Screenshots, TrainSample, read_samples
from learning.engines.choice import engine_of
from learning.engines.engine import SampleRef
from learning.engines.fsdp.costs import Shape
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.shards import whole
from learning.job import Job
from learning.learner import Learner
from learning.planning.balance import BalanceCost
from models.padding import replace_weights
from models.policy import Context
from models.serving.local import TransformersModel
from models.vlm import VlmPolicy
from schemas.config.training import TrainConfig
from schemas.observation import Observation

PRECISION = {"bf16": "bfloat16", "fp32": "float32"}
NOTHING = BalanceCost(0, 0)


def main() -> None:
    """Train on every sample once, in order, and print the numbers."""
    path, setting = sys.argv[1:]
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # as `learning.trainer` does
    job = Job.model_validate_json(Path(path).read_text())
    job = job.model_copy(update={"train": changed(job.train, setting)})
    engine = engine_of(job, 0, 1)
    assert isinstance(engine, FsdpEngine)
    (answer_and_train if job.train.method == "grpo" else train)(job, engine, Clock(job.train.batch))


def changed(train: TrainConfig, setting: str) -> TrainConfig:
    """Return the config with a precision and other keys: `bf16 token_cap=auto`."""
    precision, *pairs = setting.split()
    content = train.model_dump(exclude_unset=True) | {"precision": PRECISION[precision]}
    for pair in pairs:
        key, _, value = pair.partition("=")
        *sections, name = key.split(".")
        inner: dict[str, Any] = content
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return TrainConfig.model_validate(content)


def train(job: Job, engine: FsdpEngine, clock: Clock) -> None:
    """Make one step of each batch of the samples."""
    samples, batch = method_of(job.train).read(job.samples), job.train.batch
    clock.begin()
    learner = Learner(job, samples, 0, 1, engine)
    batches = [[SampleRef(at, at) for at in range(first, first + batch)] for first in range(0, len(samples), batch)]
    ahead = learner.prepare(batches[0])
    for step in range(len(batches)):
        here = ahead
        if step + 1 < len(batches):
            ahead = learner.prepare(batches[step + 1])
        clock.facts["pieces"] = len(engine.ready(here).pieces)
        clock.ready()
        clock.end(float(learner.step(here, job.learning_rate).loss))
    each = learner.objective.each
    needs = [needed(engine, job, [ref.sample * each + side for ref in one for side in range(each)]) for one in batches]
    clock.facts |= {"operations": [once for once, _ in needs], "apart": [apart for _, apart in needs]}
    clock.print()
    learner.close()


def answer_and_train(job: Job, engine: FsdpEngine, clock: Clock) -> None:
    """Answer the prompts of each step with the newest weights, and make a step of the replies."""
    prompts, screenshots = read_samples(job.samples), Screenshots(job.screenshots)
    config = job.policy.model_copy(update={"batch": job.train.batch, "device": job.train.device})
    policy, learner = VlmPolicy(job.parent, config), None
    batch, each = job.train.batch, job.train.batch // job.train.group.size
    refs = [SampleRef(at, at) for at in range(batch)]
    clock.facts |= {"operations": [], "apart": [], "answering s": [], "tokens": []}
    clock.begin()
    for step in range(len(prompts) // each):
        began = time.perf_counter()
        rollouts = answers(policy, prompts[step * each : (step + 1) * each], screenshots, job.train.group.size, step)
        clock.facts["answering s"].append(time.perf_counter() - began)
        clock.facts["tokens"].append(sum(len(one.token_ids) for one in rollouts) / batch)
        if learner is None:
            learner = Learner(job, rollouts, 0, 1, engine)
        else:
            learner.take(rollouts, job.screenshots)
        prepared, asked = learner.prepare(refs), time.perf_counter()
        clock.facts["pieces"] = len(engine.ready(prepared).pieces)
        clock.ready(asked)
        loss = float(learner.step(prepared, job.learning_rate).loss)
        copy_weights(engine, policy)
        clock.end(loss)
        for name, count in zip(("operations", "apart"), needed(engine, job, range(batch)), strict=True):
            clock.facts[name].append(count)
        clock.resume()
    clock.print()
    if learner is not None:
        learner.close()


def answers(
    policy: VlmPolicy, prompts: Sequence[TrainSample], screenshots: Screenshots, group: int, step: int
) -> list[Rollout]:
    """Answer each prompt so often, and compare the replies of each prompt with each other."""
    contexts = list[Context]()
    for sample in prompts:
        (digest,) = sample.screenshots
        screen = Observation(screenshots.png(digest), *screenshots.size(digest), sample.instruction)
        contexts += [
            Context(sample.instruction, (), screen, seed=len(prompts) * group * step + len(contexts) + at)
            for at in range(group)
        ]
    made, found = policy.act(contexts, 1.0), list[Rollout]()
    for number, sample in enumerate(prompts):
        own = made[number * group : (number + 1) * group]
        gains = of_group([worth(one.token_ids) for one in own])
        found += [
            Rollout(
                f"{step}-{number}-{at}", 0, sample.task_id, sample.screenshots, sample.instruction, (), one.text,
                one.token_ids, one.logprobs, advantage=float(gain), group_id=f"{step}-{number}",
            )
            for at, (one, gain) in enumerate(zip(own, gains, strict=True))
        ]  # fmt: skip
    return found


def copy_weights(engine: FsdpEngine, policy: VlmPolicy) -> None:
    """Copy the trained weights into the local generator, on the device, and forget what it computed with others."""
    generator = policy.model
    assert isinstance(generator, TransformersModel)
    named = {name.removeprefix("model."): part for name, part in engine.weights().items() if name.startswith("model.")}
    weights = {name: whole(cast(Any, part)) for name, part in named.items()}
    with generator.batch.paused():
        replace_weights(generator.model, weights)
        generator.prefill.forget()


def needed(engine: FsdpEngine, job: Job, documents: Sequence[int]) -> tuple[float, float]:
    """Count the operations that a step of these documents needs.

    Forward and backward passes count as in `learning.engines.fsdp.costs`: attention within documents, logits of targets
    only, and nothing twice that is computed again. With adapters, gradients of frozen weights do not count, nor any
    gradient of a tower without adapters; the gradients of the adapters themselves, below 1 %, are left out.

    Returns:
        the operations if tokens and screens with which several documents of the step begin are computed once, as a
        policy with one micro-batch does; and those of documents that share nothing.
    """
    rules, engine.rules = engine.rules, replace(engine.rules, cap=None, cluster=None, memory=None)
    try:
        pieces = engine.prepared(list(documents)).pieces  # one micro-batch
    finally:
        engine.rules = rules
    known = engine.items
    items = [known[one] for one in documents]
    spans = [(0, item.tokens) for item in items]
    screens = [screen.patches for item in items for screen in item.screens]
    targets = sum(len(one.targets) for one in pieces)

    def both(shape: Shape) -> tuple[float, float]:
        return sum(one.operations(shape) for one in pieces), shape.operations(spans, screens, targets)

    shape = engine.shape
    if not engine.adapted:
        return both(shape)
    language, vision = shape.language, NOTHING if not job.train.lora.vision else shape.vision
    parts = [
        (replace(shape, language=replace(language, quadratic=0), vision=replace(vision, quadratic=0)), 4 / 6),
        (replace(shape, language=replace(language, linear=0), vision=replace(vision, linear=0), head=0), 1.0),
    ]
    if not job.train.lora.vision:
        parts.append((replace(shape, language=NOTHING, head=0), 2 / 6))  # the forward pass alone
    counted = [(both(part), share) for part, share in parts]
    return sum(share * once for (once, _), share in counted), sum(share * apart for (_, apart), share in counted)


if __name__ == "__main__":
    main()
