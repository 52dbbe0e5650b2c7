"""Run one run of a deployment: a worker starts `python -m apps.deployed` in place of Prefect's engine.

It is Prefect's engine with two properties of all processes of this project. A signal ends it soon and leaves no process
behind; the kernel also sends a signal if the worker was killed. An error that the user can fix is one line in the run's
log, not a traceback. If the server becomes unreachable, the work continues, pending reports are dropped, and the
process ends soon after its last stage.
"""

import logging
import runpy

from apps.process import heeded, leave, settle
from common.supervisor import end_with_parent
from schemas.failure import FlywheelError


def main() -> None:
    """Runs the flow run that the environment names."""
    settle()
    end_with_parent()
    with heeded():
        from prefect.settings import PREFECT_API_URL

        from apps.calling import report_outage, silence_background
        from apps.schedule.deployments import described, flow_at
        from tasks.running.run_page import answers

        for one in described():  # before Prefect's import, which puts the current folder first on the path
            flow_at(one["entrypoint"])
        for name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
            logging.getLogger(name).addFilter(in_a_line)
        silence_background()
        try:
            runpy.run_module("prefect.engine", run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code
        if (url := PREFECT_API_URL.value()) and not answers(url):
            report_outage(url)
    leave(code)


def in_a_line(record: logging.LogRecord) -> bool:
    """Removes the traceback from a log record of a `FlywheelError`, whose message has its own hint."""
    raised = record.exc_info[1] if record.exc_info else None
    if isinstance(raised, FlywheelError):
        record.msg, record.args = str(raised), ()
        record.exc_info = record.exc_text = None
    return True


if __name__ == "__main__":
    main()
