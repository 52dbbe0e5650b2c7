"""Connects the ranks that save and load together, over a process group that the training does not use.

DCP's wrapper runs the collectives: it raises an error of one rank on all ranks, so that no rank is left waiting.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.utils import _DistWrapper

from schemas.failure import CheckpointError, DamagedError, FlywheelError, RankLostError

T = TypeVar("T")
R = TypeVar("R")


class Ranks:
    """All ranks of the job, or only this process without a job.

    Making the object is a collective.
    """

    def __init__(self, timeout: timedelta) -> None:
        together = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.group = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=timeout)) if together else None
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1
        self.planned = 0
        """Number of plans on which the ranks have agreed."""
        self._wrapper = _DistWrapper(self.group, together, 0)

    def ask(self, changed: bool, step: int) -> Callable[[], bool]:
        """Starts to find out whether `changed` is true on any rank; a call of the result waits for the answer.

        It takes one small sum, the only communication before a save with a known plan.

        Raises:
            CheckpointError: raised by the result: the ranks are not at the same step.
        """
        group = self.group
        if group is None:
            return lambda: changed
        flags = torch.tensor([int(changed), step, -step])
        asked = self.guarded(lambda: dist.all_reduce(flags, dist.ReduceOp.MAX, group=group, async_op=True))
        assert asked is not None

        def answer() -> bool:
            self.guarded(asked.wait)
            if flags[1] != -flags[2]:
                problem = f"One rank saves step {int(flags[1])} and another step {-int(flags[2])}."
                raise CheckpointError(problem, "All ranks must save the same step.")
            return bool(flags[0])

        return answer

    def plan(
        self, local: Callable[[], SavePlan], share_out: Callable[[list[SavePlan]], tuple[list[SavePlan], Metadata]]
    ) -> tuple[SavePlan, Metadata | None]:
        """Returns this rank's part of a plan that rank 0 makes, and on rank 0 also the metadata."""
        found: list[Metadata] = []

        def on_first(plans: list[SavePlan]) -> list[SavePlan]:
            shares, metadata = share_out(plans)
            found.append(metadata)
            return shares

        self.planned += 1
        mine = self.guarded(lambda: self._wrapper.reduce_scatter("plan", local, on_first))
        return mine, found[0] if found else None

    def broadcast(self, find: Callable[[], T]) -> T:
        """Returns the result of rank 0's `find` on every rank."""
        return self.guarded(lambda: self._wrapper.broadcast("find", find))

    def meet(self) -> None:
        """Waits until all ranks have called this."""
        group = self.group
        if group is not None:
            self.guarded(lambda: dist.barrier(group))

    def all_gather(self, find: Callable[[], T]) -> list[T]:
        """Returns the results of every rank's `find`."""
        return self.guarded(lambda: self._wrapper.all_gather("find", find))

    def all_reduce(self, find: Callable[[], T], join: Callable[[list[T]], R]) -> R:
        """Returns the result of rank 0's `join` on the ranks' results; `join` is not called if a rank failed."""
        return self.guarded(lambda: self._wrapper.all_reduce("write", find, join))

    def close(self) -> None:
        """Releases the process group."""
        if self.group is not None and dist.is_initialized():
            dist.destroy_process_group(self.group)
        # no reference may remain, so that the group's threads end now and not during the interpreter's shutdown
        self.group, self._wrapper = None, _DistWrapper(None, False, 0)

    def guarded(self, call: Callable[[], T]) -> T:
        """Runs a collective, and turns its error into a `CheckpointError` that names the rank."""
        try:
            return call()
        except CheckpointException as failed:
            rank, (error, trace) = min(failed.failures.items())
            where = f"rank {rank}: " if self.size > 1 else ""
            if isinstance(error, FlywheelError):
                kind = DamagedError if isinstance(error, DamagedError) else CheckpointError
                raise kind(f"{where}{error.problem}", error.hint) from error
            what = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"{where}{what}", "".join(trace.format()[-1:])) from error
        except RuntimeError as error:
            problem = f"A rank was lost while the ranks were waiting for each other: {error}."
            raise RankLostError(problem, "Start again; the last committed checkpoint is whole.") from error
