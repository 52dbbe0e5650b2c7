"""Run one run of a deployment: a worker starts `python -m apps.deployed` in place of Prefect's engine.

It is that engine, with two properties of all our processes. A signal ends it soon and leaves no process behind; the
kernel also sends one if the worker was killed outright. An error that the user can fix is one line in the run's log,
not a traceback. If the server becomes unreachable, the work continues, pending reports are dropped, and the process
ends soon after its last stage.
"""

import ctypes
import logging
import os
import runpy
import signal

from apps.environment import settle
from apps.interrupts import heeded, leave
from schemas.failure import FlywheelError

PR_SET_PDEATHSIG = 1
RETRIES = "PREFECT_CLIENT_MAX_RETRIES"
MOST_RETRIES = "3"
"""Retries of a request to the server: 14 s of waiting in all, where Prefect waits for a minute. Almost all requests are
made as a run begins and ends."""


class InALine(logging.Filter):
    """Removes the traceback from log records of a `FlywheelError`, whose message has its own hint."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shows every record."""
        raised = record.exc_info[1] if record.exc_info else None
        if isinstance(raised, FlywheelError):
            record.msg, record.args = str(raised), ()
            record.exc_info = record.exc_text = None
        return True


def main() -> None:
    """Runs the flow run that the environment names."""
    settle()
    os.environ.setdefault(RETRIES, MOST_RETRIES)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with heeded():
        from prefect.settings import PREFECT_API_URL

        from apps.calling import heed_our_own
        from apps.schedule.deployments import described, flow_at
        from apps.server_outage import until_unreachable

        heed_our_own()
        for one in described():  # before Prefect does, which puts the current folder first on the path
            flow_at(one["entrypoint"])
        for name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
            logging.getLogger(name).addFilter(InALine())
        with until_unreachable(PREFECT_API_URL.value() or ""):
            try:
                runpy.run_module("prefect.engine", run_name="__main__")
                code = 0
            except SystemExit as end:
                code = end.code
    leave(code)


if __name__ == "__main__":
    main()
