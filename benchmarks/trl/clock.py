"""Record the steps of a training, alike on both sides: seconds, waits for data, memory."""

import json
import resource
import time
from typing import Any

import psutil
import torch


class Clock:
    """Prints all numbers so far as a line of JSON after each step, so that an ended worker loses none.

    Args:
        samples: samples of a step.
    """

    def __init__(self, samples: int) -> None:
        self._samples, self._first_loss = samples, float("nan")
        self._start = self._mark = self._wait = 0.0
        self._seconds, self._waits = list[float](), list[float]()
        self._free: float | None = None
        self.facts: dict[str, Any] = {}
        """What else is printed, such as the operations of each step."""

    def begin(self) -> None:
        """Starts the first step, before its data are read."""
        self._start = time.time() - psutil.Process().create_time()
        self.resume()

    def resume(self) -> None:
        """Starts the next step; what came since the end of the last one is not counted."""
        self._mark = time.perf_counter()

    def ready(self, since: float | None = None) -> None:
        """Notes that the step's data are there, and were waited for since this time, or since the step's start."""
        self._wait = time.perf_counter() - (self._mark if since is None else since)

    def end(self, loss: float = float("nan")) -> None:
        """Ends a step, when the device has done its work, and starts the next one."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
            free, whole = torch.cuda.mem_get_info()
            self._free = min(free / whole, 1.0 if self._free is None else self._free)
        self._seconds.append(time.perf_counter() - self._mark)
        self._waits.append(self._wait)
        if len(self._seconds) == 1:
            self._first_loss = loss
        self.print()
        self.resume()

    def print(self) -> None:
        """Prints the numbers so far."""
        numbers = {
            "samples/s": self._samples * len(self._seconds) / sum(self._seconds),
            "first loss": self._first_loss,
            "peak MiB": peak_mib(),
            "free": self._free,
            "start s": self._start,
            "steps s": self._seconds,
            "waits s": self._waits,
        }
        print(json.dumps(numbers | self.facts), flush=True)


def peak_mib() -> float:
    """The most memory so far: the GPU's where there is one in use, else the process's."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
