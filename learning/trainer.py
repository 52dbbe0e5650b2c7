"""Runs the training process: `python -m learning.trainer JOB.json [BOARD]`, or the same under torchrun.

Without torchrun, it starts the other ranks itself (`learning.launch`). It writes messages and heartbeats to a status
folder (`learning.status_folder`); without one it prints its messages. The learner defines a step (`learning.learner`):
the method's objective on the engine of the parent's network. A killed training resumes from its last checkpoint when
the same job is started again, on any number of ranks. A job with a stream trains on batches as they arrive, and
publishes its weights after each batch (`learning.data.rounds`, `learning.data.stream`). Its messages
(`learning.reports.send`) are `{"waiting"}` while another training has the GPU, `{"processes", "device"}`, with `gpus`
if there are several machines, `{"damaged", "problem", "aside"}` for a checkpoint that could not be loaded,
`{"warning"}`, `{"resumed"}` if it resumes from one, `{"step", "steps", "loss", "samples_per_s", "measures"}`
(`learning.learner`), `{"published"}` with the number of updates, at the end `{"checkpoint", "loss", "seconds",
"numbers"}`, on an error `{"error"}` and a non-zero exit. The checkpoint appears whole or not at all.

Profiles the first steps of a training by option (`train.profile`): one trace file for each rank.

A file is a Chrome trace, for https://ui.perfetto.dev or chrome://tracing.

`TrainerCheckpoints` saves checkpoints during a training, and finds them when the same job is started again.

The step's number determines the next samples (`learning.data.rounds`), so there is no loader state to save.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock
from torch.profiler import ProfilerActivity, profile, schedule

from common import log
from learning.algorithms.method import method_of
from learning.checkpoint import Checkpoints, Restored
from learning.checkpoint.planner import Ranks
from learning.data.rounds import Round, Rounds, Sampler
from learning.data.stream import StreamFolder
from learning.engines.choice import unsliced
from learning.engines.engine import SampleRef
from learning.engines.optimizer import learning_rate
from learning.job import Job, read_job, steps_place
from learning.launch import PATIENCE, end_ranks, join, start_ranks, take_gpus, watch_parent
from learning.learner import Learner, StepResult
from learning.reports import REPORTS, send
from learning.status_folder import HeartbeatThread, StatusFolder
from learning.writing import is_finished, result_of, sweep_leftovers, write_checkpoint
from schemas.failure import FlywheelError, RankLostError, UsageError


class TrainerCheckpoints:
    """A learner's checkpoints; all ranks make the object and call every method."""

    def __init__(self, job: Job, learner: Learner) -> None:
        self._every, self._steps, self._learner = job.train.checkpoint_every, job.steps, learner
        lora = job.train.lora
        self._extra = {"lora": lora.model_dump(mode="json")} if lora.rank else {}
        self._checkpoints = Checkpoints(steps_place(job)) if self._every else None

    def restore(self) -> Restored:
        """Fills the learner from the newest whole checkpoint; damaged newer checkpoints are set aside and listed.

        Raises:
            CheckpointError: the checkpoint has another architecture.
        """
        if self._checkpoints is None:
            return Restored(None, {}, ())
        found = self._checkpoints.restore(self._learner.state())
        if found.step is not None:
            self._learner.restored(found.step)
        return found

    def due(self, step: int) -> bool:
        """Checks whether a save is due after this number of steps."""
        return bool(self._every) and step % self._every == 0 and step < self._steps

    def now(self, step: int) -> None:
        """Saves after this number of steps, if the job has checkpoints; the training continues during the writing."""
        if self._checkpoints is not None:
            self._checkpoints.save(self._learner.state(), step, {"step": step, **self._extra})

    def close(self) -> None:
        """Waits for the last save."""
        if self._checkpoints is not None:
            self._checkpoints.close()


SKIPPED = 1
"""Number of steps that are not profiled, since the first step starts threads, compiles kernels and allocates memory."""


def profiler_of(job: Job, rank: int) -> profile | None:
    """Starts to profile `train.profile` steps of a rank, and writes their trace; None without profiled steps."""
    if not job.train.profile:
        return None
    job.profiles.mkdir(parents=True, exist_ok=True)
    made = profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])],
        schedule=schedule(wait=SKIPPED, warmup=1, active=job.train.profile, repeat=1),
        on_trace_ready=lambda made: made.export_chrome_trace(str(job.profiles / f"rank-{rank}.json.gz")),
    )
    made.start()
    return made


SMALLER = (
    "Lower train.token_cap (a token of a screen is several patches in the vision tower, whose activations it does not "
    "count), or set train.activation_checkpointing=true or train.lora.rank."
)


def train(job: Job, pulse: HeartbeatThread | None = None) -> None:
    """Trains as one rank of `WORLD_SIZE`; rank 0 reports and writes.

    Args:
        job: the training.
        pulse: this rank's heartbeats; None for a training without a starter.

    Raises:
        CheckpointError: the parent cannot be trained, or the checkpoint exists already.
        FlywheelError: there are no samples, or the loss or gradient is no number.
    """
    rank, world = dist.get_rank() if dist.is_initialized() else 0, int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(job.train.threads)
    started, pulse = time.perf_counter(), pulse or HeartbeatThread()
    ranks = Ranks(PATIENCE)
    if ranks.broadcast(lambda: _is_done(job)):
        ranks.close()
        return
    method = method_of(job.train)
    alone = unsliced(job.policy, job.train, job.parent)
    if alone and job.policy.context == "fold" and rank == 0:
        send(warning=f"policy.context is fold, and each reply is trained in a sequence of its own: {alone}.")
    rounds = Rounds(job, method.read, getattr(method.settings(job.train), "epochs", 1.0), sliced=not alone)
    coming = iter(rounds)
    first = next(coming)
    learner = Learner(job, first.samples, rank, world)
    kept, profiler = TrainerCheckpoints(job, learner), profiler_of(job, rank)
    try:
        done = _resume(job, kept, rank)
        loss, waited, ready, end = 0.0, rounds.waited_s, time.perf_counter(), 0

        def report(part: Round, step: int, loss: float, measures: Mapping[str, float]) -> None:
            seconds = time.perf_counter() - ready - (rounds.waited_s - waited)
            if rank == 0:
                _progress(part, step, loss, (step - done) * job.train.batch / seconds, measures)

        for part in chain([first], coming):
            end = part.end
            if end > done:
                steps = range(max(part.first, done), end)
                loss = _train_round(job, learner, kept, profiler, part, steps, report, pulse)
                if job.stream is not None:
                    _publish(learner, job, ranks, part.number)
                    kept.now(end)
        ended = {"loss": round(loss, 4), "numbers": learner.metrics()}
        write_checkpoint(learner, job, ranks, end, ended)
    finally:
        if profiler is not None:
            profiler.stop()
        kept.close()
        ranks.close()
        learner.close()
    if rank == 0:
        times = {"waited_s": round(rounds.waited_s, 2)} if job.stream is not None else {}
        times |= {"seconds": round(time.perf_counter() - started, 2), "ready_s": round(ready - started, 2)}
        send(checkpoint=str(job.out), **ended, **times)


def _resume(job: Job, kept: TrainerCheckpoints, rank: int) -> int:
    """Resumes from the newest whole checkpoint; returns the number of steps made."""
    restored = kept.restore()
    if rank == 0:
        for one in restored.damaged:
            send(damaged=one.step, problem=one.problem, aside=one.aside)
        if restored.step:
            send(resumed=restored.step, steps=job.steps)
    return restored.step or 0


Report = Callable[[Round, int, float, Mapping[str, float]], None]
"""Callback with the number of steps made, the last step's loss, and the measures since the previous report."""


def _train_round(
    job: Job,
    learner: Learner,
    kept: TrainerCheckpoints,
    profiler: profile | None,
    part: Round,
    steps: range,
    report: Report,
    pulse: HeartbeatThread,
) -> float:
    """Makes these steps of a round; returns the last loss."""
    if job.stream is not None:
        learner.take(part.samples, part.screenshots)
    loss, engine = 0.0, learner.engine
    for step, result in zip(steps, _steps(job, learner, part, steps), strict=True):
        if profiler is not None:
            profiler.step()
        _note(job, engine.rank, step, result)
        if job.stream is None and kept.due(step + 1):
            pulse.rest("saving a checkpoint")
            kept.now(step + 1)
        pulse.step(step + 1)
        if measurement := learner.objective.measurement:
            pulse.rest(measurement)
        if (step + 1) % engine.report_every == 0 or step + 1 == part.end:
            loss, measures = learner.measured(result)
            report(part, step + 1, loss, measures)
    pulse.rest("writing, or waiting for a batch")
    return loss


def refs_of(job: Job, sampler: Sampler, step: int, slices: Sequence[Sequence[int]] | None = None) -> list[SampleRef]:
    """Selects the samples of one step: the same on every rank and for any number of ranks.

    `slices` lists the samples of each of the sampler's ids; if it is not given, an id is a sample.
    """
    size = job.train.batch
    drawn = [(position, sampler.sample(position)) for position in range(step * size, (step + 1) * size)]
    return [SampleRef(at, sample) for at, one in drawn for sample in ((one,) if slices is None else slices[one])]


def _steps(job: Job, learner: Learner, part: Round, steps: range) -> Iterator[StepResult]:
    """Makes these steps of a round; starts the next step's batch before each step."""
    ahead = learner.prepare(refs_of(job, part.sampler, steps[0] - part.first, part.slices))
    for step in steps:
        batch = ahead
        if step + 1 < part.end:
            ahead = learner.prepare(refs_of(job, part.sampler, step + 1 - part.first, part.slices))
        rate = learning_rate(step, job.steps, job.learning_rate, job.train)
        result = learner.step(batch, rate)
        if not math.isfinite(result.norm):
            refs = refs_of(job, part.sampler, step - part.first, part.slices)
            raise FlywheelError(
                f"step {step + 1} of {part.end}: the gradient's norm is {result.norm}, of the batch of "
                f"samples {', '.join(str(ref.sample) for ref in refs)}.",
                "Nothing was written; lower train.learning_rate or look at the samples"
                + (" and at the policy that it begins from (`flywheel rollback`)." if step == 0 else "."),
            )
        yield result


def _is_done(job: Job) -> bool:
    """Checks whether this training has ended already, and reports it; removes leftovers of a killed start."""
    sweep_leftovers(job.out)
    done = is_finished(job)
    if done:
        send(checkpoint=str(job.out), **result_of(job))
    return done


def _publish(learner: Learner, job: Job, ranks: Ranks, updates: int) -> None:
    """Publishes the weights for the actors; replaces equal weights of an earlier, killed start."""
    assert job.stream is not None
    folder = StreamFolder(job.stream)
    place = folder.weights(updates)
    if ranks.rank == 0:
        shutil.rmtree(place, ignore_errors=True)
    write_checkpoint(learner, job.model_copy(update={"out": place}), ranks)
    if ranks.rank == 0:
        folder.forget()
        send(published=updates)


def _note(job: Job, rank: int, step: int, result: StepResult) -> None:
    """Adds a step to this rank's trace of samples, if the job asks for it."""
    if job.trace is not None:
        job.trace.mkdir(parents=True, exist_ok=True)
        with (job.trace / f"rank-{rank}.jsonl").open("a") as notes:
            notes.write(json.dumps({"step": step, "samples": result.samples}) + "\n")


def _progress(part: Round, step: int, loss: float, pace: float, measures: Mapping[str, float]) -> None:
    shown = {name: float(f"{value:.5g}") for name, value in measures.items()}
    paced = {"samples_per_s": round(pace, 1), "samples": len(part.samples)}
    send(step=step, steps=part.end, loss=round(loss, 4), **paced, measures=shown)


def main() -> int:
    """Runs the job named on the command line; returns the exit status."""
    ranks: list[subprocess.Popen[bytes]] = []
    held: list[FileLock] = []
    pulse, board = HeartbeatThread(), StatusFolder(sys.argv[2]) if len(sys.argv) == 3 else None
    rank = int(os.environ.get("RANK", "0"))
    # batches differ in size, and without it a GPU's allocator asks the driver hundreds of times a step
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    if board is not None and rank == 0:
        REPORTS.to(board)
    try:
        if len(sys.argv) not in (2, 3):
            raise UsageError("One argument is needed, or two.", "python -m learning.trainer JOB.json [BOARD]")
        job = read_job(Path(sys.argv[1]))
        pulse = HeartbeatThread(board, rank, job.train.hung_s)
        watch_parent()
        held = take_gpus(job, lambda text: send(waiting=text))
        ranks = start_ranks(job)
        join(job, ranks)
        train(job, pulse)
    except RankLostError as error:
        log.write("error", str(error))
        return error.exit_code
    except FlywheelError as error:
        _refuse(board, rank, str(error))
        return error.exit_code
    except torch.OutOfMemoryError as error:
        problem = f"The GPU's memory is full: {str(error).partition('. GPU')[0]}."
        _refuse(board, rank, str(FlywheelError(problem, SMALLER)))
        return 1
    finally:
        end_ranks(ranks)
        for lock in held:
            lock.release()
        REPORTS.flush()
        pulse.close()
    return 0


def _refuse(board: StatusFolder | None, rank: int, problem: str) -> None:
    """Reports an error that another start of this training would repeat."""
    if rank == 0:
        send(error=problem)
    elif board is not None:
        board.complain(f"rank {rank}", problem)


if __name__ == "__main__":
    sys.exit(main())
