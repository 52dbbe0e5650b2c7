"""The ranks of `benchmarks.train_step`: the real learner under several plans, alternately; rank 0 writes what it took.

torchrun --nproc-per-node 4 -m benchmarks.shared.step_ranks FOLDER BATCHES REPEATS
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from learning.data.sample import read_samples
from learning.engines.engine import SampleRef
from learning.engines.fsdp.engine import FsdpEngine, PlannedBatch
from learning.job import read_job
from learning.learner import Learner
from learning.parallel.dispatch import Route, all_to_all
from learning.planning.balance import Ints
from learning.planning.sequence_cost import ClusterCost, Group
from learning.planning.sequence_mix import homogeneous
from learning.planning.sequence_plan import cut
from learning.planning.step_plan import MicroBatch, Rules, SampleLengths, plan_of, plan_step, predicted
from schemas.failure import PlanError

Planner = Callable[[list[SampleLengths]], list[MicroBatch]]
TRIES = 24
"""Numbers of micro-batches that a homogeneous plan is tried with."""


class Marks:
    """An all-to-all that notes when it is reached, on the way forward and on the way back."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, rows: Tensor, way: Route) -> Tensor:
        """As `all_to_all`."""
        self.seconds.append(time.thread_time())
        arrived = all_to_all(rows, way)
        arrived.register_hook(lambda _: self.seconds.append(time.thread_time()))
        return arrived


def timed(learner: Learner, batch: PlannedBatch, marks: Marks) -> list[tuple[float, float]]:
    """Seconds of this rank's processor for each micro-batch, by phase; waiting for the others costs none.

    The phases meet in the all-to-all, on the way forward and on the way back.
    """
    seconds = []
    for piece in batch.pieces:
        dist.barrier()
        marks.seconds.clear()
        started = time.thread_time()
        learner.add_gradient(piece, batch)
        forward, back = marks.seconds
        ended = time.thread_time()
        seconds.append((forward - started + ended - back, back - forward))
    return seconds


def best_homogeneous(cost: ClusterCost, rules: Rules, degree: int | None) -> Planner:
    """The quickest plan with one degree in all groups, the given one or the best; even cuts, as many as help."""

    def made(items: list[SampleLengths]) -> list[MicroBatch]:
        lengths = np.array([item.tokens for item in items])
        degrees = [degree] if degree else [each for each in cost.degrees if cost.capacity(each) >= lengths.max()]
        found = []
        for each in degrees:
            for number in range(1, min(TRIES, len(lengths)) + 1):
                tried = [_cut_out(members, lengths, rules.ranks, cost, each) for members in cut(lengths, number)]
                batches = [one for one in tried if one is not None]
                if len(batches) == len(tried):
                    found.append((sum(span for span, _ in batches), [groups for _, groups in batches]))
        if not found:
            raise PlanError("no homogeneous plan fits.", "Raise train.token_cap.")
        return plan_of(min(found, key=lambda one: one[0])[1], items, rules)

    return made


def _cut_out(
    members: Ints, lengths: Ints, ranks: int, cost: ClusterCost, degree: int
) -> tuple[float, tuple[Group, ...]] | None:
    """Predicted milliseconds and groups of one degree for some of the samples, or None if they do not fit."""
    part = homogeneous(lengths[members], ranks, cost, degree)
    if part is None:
        return None
    named = [tuple(int(members[place]) for place in group.sequences) for group in part.groups]
    return part.milliseconds, tuple(Group(g.degree, g.first, own) for g, own in zip(part.groups, named, strict=True))


def arms(engine: FsdpEngine) -> dict[str, dict[str, Planner]]:
    """Plans to compare, by what they are compared in."""
    free = engine.rules.without_sequence_plans()
    capped, cost = engine.rules, engine.rules.cluster
    assert cost is not None
    in_turn = Rules(free.ranks, free.vision, free.language, level=False)
    static = max(cost.least_degree(max(item.tokens for item in engine.items)), 1)
    return {
        "balance": {
            "in turn": lambda items: plan_step(items, in_turn),
            "language only": lambda items: _with_screens_in_turn(plan_step(items, free), items, free.ranks),
            "both phases": lambda items: plan_step(items, free),
        },
        "sequence plans": {
            f"static: degree {static} for all": best_homogeneous(cost, capped, static),
            "best single degree": best_homogeneous(cost, capped, None),
            "mixed degrees": lambda items: plan_step(items, capped),
        },
    }


def _with_screens_in_turn(plan: list[MicroBatch], items: list[SampleLengths], ranks: int) -> list[MicroBatch]:
    """The same plan, every screen encoded where its sample came from: the sample's number modulo the ranks."""
    return [
        MicroBatch(batch.groups, tuple(sample % ranks for sample in batch.samples for _ in items[sample].screens))
        for batch in plan
    ]


def main() -> None:
    """Runs every arm on the same batches, in turn, and writes `FOLDER/measured.json`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder, batches, repeats = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    job = read_job(folder / "job.json")
    marks = Marks()
    engine = FsdpEngine(job, rank, world, exchange=marks)
    learner = Learner(job, read_samples(job.samples), rank, world, engine)
    found: dict[str, Any] = {}
    size = job.train.batch
    for compared, planners in arms(engine).items():
        for batch in range(batches):
            chosen = list(range(batch * size, (batch + 1) * size))
            items = [engine.items[sample] for sample in chosen]
            readies = {name: engine.prepared(chosen, planner(items)) for name, planner in planners.items()}
            for repeat in range(repeats + 1):
                for name, ready in readies.items():
                    mine = timed(learner, ready, marks)
                    everyone: list[Any] = [None] * world
                    dist.all_gather_object(everyone, mine)
                    if repeat:  # the first round warms up
                        entry = found.setdefault(f"{compared}/{name}", {"seconds": {}, "tokens": 0, "predicted": {}})
                        entry["seconds"].setdefault(str(batch), []).append(everyone)
                        entry["predicted"][str(batch)] = predicted(ready.plan, items, engine.rules)
                        entry["micro_batches"] = entry.get("micro_batches", 0) + len(ready.plan) / (batches * repeats)
        for name in planners:
            found[f"{compared}/{name}"]["tokens"] = sum(item.tokens for item in engine.items[: batches * size])
    tokens = sum(item.tokens for item in engine.items[: batches * size])
    found["step"] = {"seconds": _steps(learner, batches, size), "tokens": tokens}
    if rank == 0:
        (folder / "measured.json").write_text(json.dumps(found))
    learner.close()
    dist.barrier()
    dist.destroy_process_group()


def _steps(learner: Learner, batches: int, size: int) -> float:
    """Seconds of the trainer's own steps, planning a step ahead included, by the wall."""
    refs = [[SampleRef(at, at) for at in range(batch * size, (batch + 1) * size)] for batch in range(batches)]
    ahead = learner.prepare(refs[0])
    learner.step(ahead, 0.0)
    dist.barrier()
    started = time.perf_counter()
    ahead = learner.prepare(refs[0])
    for batch in range(batches):
        ready = ahead
        if batch + 1 < batches:
            ahead = learner.prepare(refs[batch + 1])
        learner.step(ready, 0.0)
    dist.barrier()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
