"""Saves checkpoints without stopping the training, and loads them on any number of ranks.

The module checks that a checkpoint fits the state to be filled, and its errors name the difference.
"""

import difflib
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import fsspec
import torch

from learning.checkpoint.exchange import hand_on, place_own, read_blocks
from learning.checkpoint.loading import SavingPlan, Wanted, described, loading_plan, saving_plan
from learning.checkpoint.manifest import (
    Manifest,
    already_there,
    checked_extra,
    commit,
    committed,
    discard,
    folder_of,
    read_manifest,
    set_aside,
    tidy,
)
from learning.checkpoint.planner import Ranks, global_plan, local_plan
from learning.checkpoint.shard_file import Written, write_file
from learning.checkpoint.state import LocalBox, State, dtype_of, holdings, shape_of, signature
from schemas.failure import CheckpointError, DamagedError
from storage.objects import ObjectStore, open_store

_MEND = "Load it into the architecture that it was saved from."


def match(store: ObjectStore, manifest: Manifest, state: State, found: list[LocalBox]) -> Wanted:
    """Lists the boxes that this rank needs, and appends their memory to `found` in the same order.

    Raises:
        CheckpointError: the checkpoint lacks a tensor, or has it in another shape or type.
    """
    where = store.path(folder_of(manifest.step))
    for name, part in state.items():
        held = holdings(name, part)
        saved = manifest.tensors.get(name)
        if saved is None:
            near = difflib.get_close_matches(name, manifest.tensors, 1)
            hint = f" The nearest is `{near[0]}`." if near else ""
            raise CheckpointError(f"{where} has no tensor `{name}`.{hint}", _MEND)
        if (saved.shape, saved.torch_dtype) != (shape_of(part), dtype_of(part)):
            here = f"{str(dtype_of(part)).removeprefix('torch.')} {shape_of(part)}"
            raise CheckpointError(f"`{name}` is {saved.dtype} {saved.shape} in {where} and {here} here.", _MEND)
        found += held
    return [(held.name, held.box) for held in found]


def check_names(store: ObjectStore, manifest: Manifest, wanted: Sequence[Wanted], partial: bool) -> None:
    """Raises CheckpointError if the checkpoint has tensors that no rank needs, unless `partial`."""
    asked = {name for boxes in wanted for name, _ in boxes}
    left = [name for name, entry in manifest.tensors.items() if name not in asked and 0 not in entry.shape]
    if left and not partial:
        listed = ", ".join(f"`{name}`" for name in left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        where = store.path(folder_of(manifest.step))
        raise CheckpointError(f"{where} also has {listed}.", f"{_MEND} Or ask for a part with `partial=True`.")


@dataclass(frozen=True, slots=True)
class Damaged:
    """A checkpoint that could not be loaded."""

    step: int
    problem: str
    """Name of the damaged file, and the error."""
    aside: str
    """Current path of the checkpoint."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of restoring a training."""

    step: int | None
    """Step of the restored checkpoint; None for a start from the beginning."""
    extra: dict[str, Any]
    damaged: tuple[Damaged, ...]
    """Newer checkpoints that were set aside, newest first."""


class Checkpoints:
    """The checkpoints in one folder or at one address.

    Every rank makes an object and calls every method, in the same order.

    A save returns when this rank's part is copied. A thread then hashes, writes and commits, over a separate process
    group. The next call raises the thread's errors on every rank; `close`, or the end of a `with`, is the last such
    call. Only one run may use a place at a time.

    Args:
        place: a folder that all ranks reach, or an address such as `s3://bucket/prefix`.
        keep: number of committed checkpoints to keep; a commit removes older ones.
        filesystem: fsspec's file system for the address, if the environment lacks the settings to reach it.
        timeout: maximum time that the ranks wait for each other, including the writing.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        keep: int = 2,
        *,
        filesystem: fsspec.AbstractFileSystem | None = None,
        timeout: timedelta = timedelta(minutes=30),
    ) -> None:
        if keep < 1:
            raise CheckpointError(f"`keep` is {keep}.", "At least the last checkpoint has to stay.")
        self.store: ObjectStore = open_store(place, filesystem)
        self._keep = keep
        self._ranks = Ranks(timeout)
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None
        self._layout: tuple[object, ...] | None = None
        self._plan: SavingPlan | None = None
        self._known: set[int] = set()
        self._run = ""
        self._saves = 0
        self.planned_s = 0.0
        """Time of the last save for a new plan, or else for the ranks' agreement on the old plan, in seconds."""

    def save(self, state: State, step: int, extra: Mapping[str, Any] | None = None, blocking: bool = False) -> None:
        """Saves a state; returns after one copy of this rank's part, or with `blocking` after the commit.

        It first waits for an earlier save. Every rank must hold the same numbers of a plain tensor.

        Args:
            state: flat names to tensors; a rank may leave out tensors of which it holds no part.
            step: >= 0; not saved yet.
            extra: small JSON (seed, sampler position, job); rank 0's is kept.

        Raises:
            CheckpointError: the step exists already, shards do not fit together, or an earlier save failed.
        """
        self.wait()
        checked = checked_extra(extra)
        if step < 0:
            raise CheckpointError(f"The step is {step}.", "Count from 0.")
        layout = signature(state)
        ask = self._ranks.ask(layout != self._layout, step)
        plan = self._plan if layout == self._layout else None
        if plan is not None:
            plan.stage(state)  # while the ranks agree; repeated if they do not
        copied = time.perf_counter()
        changed = ask()
        self._refuse(step)
        if changed or plan is None:
            plan = self._planned(state, layout)
        self.planned_s = time.perf_counter() - copied
        if changed:
            plan.stage(state)
        self._saves += 1
        self._pending = self._thread.submit(self._write, plan, step, checked, f"{self._run}-{self._saves}")
        self._known.add(step)
        if blocking:
            self.wait()

    def wait(self) -> None:
        """Returns when the last save is committed.

        Raises:
            CheckpointError: the save failed, on this or another rank; earlier commits are whole.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def latest(self) -> int | None:
        """Finds the last committed step."""
        self.wait()
        steps = self._ranks.broadcast(lambda: committed(self.store))
        return steps[-1] if steps else None

    def load(self, state: State, step: int | None = None, partial: bool = False) -> dict[str, Any]:
        """Fills a state in place from a checkpoint that any number of ranks wrote; returns its `extra`.

        Changes nothing unless every byte was read and matches its checksum.

        Args:
            state: as for `save`, in this run's layout.
            step: step of the checkpoint; the last one if not given.
            partial: whether the checkpoint may have tensors that no rank needs.

        Raises:
            CheckpointError: the checkpoint does not exist, belongs to another architecture (the message names the
                tensor), or has a missing or damaged file (the message names it).
        """
        ranks, store, manifest = self._ranks, self.store, self.manifest(step)
        holdings: list[LocalBox] = []
        wanted = ranks.all_gather(lambda: match(store, manifest, state, holdings))
        check_names(store, manifest, wanted, partial)
        plan = loading_plan(manifest, [list(boxes) for boxes in wanted])
        dtypes = {name: entry.torch_dtype for name, entry in manifest.tensors.items()}
        numbers: dict[int, torch.Tensor] = {}
        folder = folder_of(manifest.step)
        ranks.all_gather(lambda: numbers.update(read_blocks(store, folder, plan, ranks.rank, dtypes)))
        with torch.no_grad():
            place_own(plan, ranks.rank, numbers, holdings)
            group = ranks.group
            if group is not None:
                ranks.guarded(lambda: hand_on(plan, ranks.rank, numbers, holdings, group))
        return manifest.extra

    def manifest(self, step: int | None = None) -> Manifest:
        """Reads the manifest of a step, or of the last one; raises CheckpointError in the cases of `load`."""
        self.wait()
        return self._ranks.broadcast(lambda: read_manifest(self.store, step))

    def restore(self, state: State) -> "Restored":
        """Fills a state in place from the newest whole checkpoint; changes nothing if there is none.

        Damaged newer checkpoints are renamed within the same folder and listed in the result. The manifest of a
        checkpoint by an earlier version has no hash. Such a checkpoint is also skipped if it does not fit the state but
        an older one does, since it has lost a tensor.

        Raises:
            CheckpointError: the checkpoint belongs to another architecture, or the place is unreachable.
        """
        self.wait()
        failed: list[tuple[int, CheckpointError]] = []
        for step in reversed(self._ranks.broadcast(lambda: committed(self.store))):
            try:
                return Restored(step, self.load(state, step), self._set_aside(failed))
            except CheckpointError as error:
                if not isinstance(error, DamagedError) and self.manifest(step).sealed:
                    raise
                failed.append((step, error))
        for _, error in failed:
            if not isinstance(error, DamagedError):
                raise error
        return Restored(None, {}, self._set_aside(failed))

    def close(self) -> None:
        """Waits for the last save , then releases the thread and the process group."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
            self._ranks.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _set_aside(self, failed: list[tuple[int, CheckpointError]]) -> tuple[Damaged, ...]:
        """Moves checkpoints that could not be loaded out of the way."""
        asides = self._ranks.broadcast(lambda: [set_aside(self.store, step) for step, _ in failed])
        return tuple(Damaged(step, one.problem, aside) for (step, one), aside in zip(failed, asides, strict=True))

    def _refuse(self, step: int) -> None:
        """Raises CheckpointError if the step is committed already; reads the committed steps on the first call."""
        if not self._run:
            found = self._ranks.broadcast(lambda: (uuid.uuid4().hex[:8], committed(self.store)))
            self._run, self._known = found[0], set(found[1])
        if step in self._known:
            raise already_there(self.store, step)

    def _planned(self, state: State, layout: tuple[object, ...]) -> SavingPlan:
        """Returns a plan with its memory; makes a new plan if any rank's layout changed."""
        self._plan = self._layout = None
        mine, metadata = self._ranks.plan(lambda: local_plan(state), global_plan)
        self._plan, self._layout = saving_plan(mine, state, metadata), layout
        return self._plan

    def _write(self, plan: SavingPlan, step: int, extra: dict[str, Any], attempt: str) -> None:
        """Writes this rank's file, in the thread; rank 0 commits when all ranks have written."""
        folder, store = folder_of(step), self.store
        file = f"{attempt}-{self._ranks.rank:05d}.distcp"
        try:
            self._ranks.meet()  # for ranks that share cores: no rank writes while another rank still copies
            self._ranks.all_reduce(
                lambda: write_file(store, folder, file, plan.slots),
                lambda written: self._commit(plan, step, extra, written),
            )
        except CheckpointError:
            self._known.discard(step)
            if self._ranks.rank == 0:
                discard(store, step, attempt)
            raise

    def _commit(self, plan: SavingPlan, step: int, extra: dict[str, Any], written: list[Written]) -> None:
        assert plan.metadata is not None
        commit(self.store, *described(plan.metadata, written, step, extra))
        tidy(self.store, self._keep)
