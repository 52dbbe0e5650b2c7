"""Profiles the first steps of a training by option (`train.profile`): one trace file for each rank.

A file is a Chrome trace, which https://ui.perfetto.dev and chrome://tracing open.
"""

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from learning.job import Job

SKIPPED = 1
"""Steps that are not profiled: the first one starts threads, compiles kernels and takes memory."""


class Profiler:
    """Profiles some steps of one rank; `step` is called after each, `close` at the end.

    Args:
        job: how many steps, `train.profile`.
        rank: this rank.
    """

    def __init__(self, job: Job, rank: int) -> None:
        self._left, self._file = job.train.profile, job.profiles / f"rank-{rank}.json.gz"
        self._made = 0
        self._profile: profile | None = None
        if not self._left:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        self._profile = profile(
            activities=activities,
            schedule=schedule(wait=SKIPPED, warmup=1, active=self._left, repeat=1),
            on_trace_ready=lambda made: made.export_chrome_trace(str(self._file)),
        )
        self._profile.start()

    def step(self) -> None:
        """Counts a step."""
        if self._profile is None:
            return
        self._profile.step()
        self._made += 1
        if self._made == SKIPPED + 1 + self._left:
            self.close()

    def close(self) -> None:
        """Writes the trace, unless it is written."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None
