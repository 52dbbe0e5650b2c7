"""Hold the processes of each sandbox to their limits together, since the kernel limits each only by itself.

It runs in a thread of its own, since a policy's computation may block the event loop while a sandbox exceeds its
limits.
"""

import threading
from typing import final

from environments.hybrid.bubblewrap import Bubblewrap

CHECK_S = 0.1


def breach(bubblewrap: Bubblewrap) -> str:
    """Describes a limit that its processes exceed together; empty if none."""
    used, limits = bubblewrap.usage(), bubblewrap.limits
    if used.memory > limits.memory_mib << 20:
        return f"its processes held {used.memory >> 20} MiB, and {limits.memory_mib} are allowed"
    if used.cpu_s > limits.cpu_s:
        return f"its processes computed for {used.cpu_s:.0f} s, and {limits.cpu_s} are allowed"
    if used.files > limits.files:
        return f"it held {used.files} files, and {limits.files} are allowed"
    return ""


@final
class Supervisor:
    """All sandboxes of this process; the thread ends with the last one."""

    def __init__(self) -> None:
        self._sandboxes: set[Bubblewrap] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, bubblewrap: Bubblewrap) -> None:
        """Watches a sandbox until `leave`."""
        with self._changed:
            self._sandboxes.add(bubblewrap)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jails", daemon=True)
                self._thread.start()

    def leave(self, bubblewrap: Bubblewrap) -> None:
        """Removes a sandbox before it is closed; it is not read any more once this returns."""
        with self._changed:
            self._sandboxes.discard(bubblewrap)
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._sandboxes:
                for bubblewrap in self._sandboxes:
                    if bubblewrap.alive and (reason := breach(bubblewrap)):
                        bubblewrap.end(reason)
                self._changed.wait(CHECK_S)
            self._thread = None


SUPERVISOR = Supervisor()
