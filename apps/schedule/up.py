"""Implement `flywheel up`: run a Prefect server, a worker, all deployments and the pages while the command runs."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from apps.schedule.processes import HOST, SERVE, ServiceProcess
from common.process import home
from schemas.config import Config
from schemas.failure import UsageError
from tasks.running.console import out

POLL_S = 0.5
"""Seconds between two checks of the parts."""


def up(config: Config, file: Path | None, overrides: Sequence[str], port: int) -> None:
    """Starts all parts, prints the address of each, and keeps them until a signal comes.

    Args:
        config: the resolved config.
        file: the config's file, if it was named.
        overrides: overrides of config keys.
        port: port of the Prefect server, if none is configured.

    Raises:
        UsageError: another `flywheel up` runs in this work folder, the configured server does not answer, or the server
            has another lake's deployments.
        FlywheelError: a part did not start, or ended.
    """
    from apps.report.build import build_report
    from apps.schedule import automations
    from apps.schedule.automations import connected
    from apps.schedule.deployments import deploy, place_of
    from storage.lake import Lake

    parts = _Parts(home() / "up")
    with ExitStack() as ends:
        try:
            ends.enter_context(FileLock(parts.folder / "lock", blocking=False))
        except Timeout as error:
            problem = f"`flywheel up` runs already for {home()}."
            raise UsageError(problem, "End it first, or set FLYWHEEL_HOME.") from error
        ends.callback(lambda: [one.stop() for one in parts.kept])
        _print_part("prefect", parts.server(port))
        lake = Lake.open(config.lake)  # the pages need an existing lake
        with connected() as client:
            deployed = deploy(client, place_of(file, overrides, lake))
            automations.put(client)
        _print_part("deployed", f"{', '.join(deployed)}; `flywheel schedule list` shows when each runs")
        _print_part("worker", parts.worker())
        _print_part("pages", parts.pages(file, overrides))
        _print_part("report", str(build_report(config)))
        _print_part("logs", f"{parts.folder}; runs log there and on Prefect's page")
        _print_part("", f"Runs of other terminals are on that page, too, after: export PREFECT_API_URL={parts.api}")
        _print_part(
            "",
            "Ctrl-C ends all of it; interrupted runs continue from their last finished stage at the next start.",
        )
        while True:
            for part in parts.kept:
                part.check()
            time.sleep(POLL_S)


class _Parts:
    """The started processes, which end in reverse order."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.kept: list[ServiceProcess] = []
        self.api = ""

    def server(self, port: int) -> str:
        """Finds or starts the server, and writes its address to the note; returns the address of its page."""
        from apps.schedule.automations import NOTE, found_server, use_server
        from tasks.running.run_page import answers

        found, own = found_server(), f"http://{HOST}:{port}/api"
        if found and not answers(found):
            raise UsageError(f"The Prefect server at {found} does not answer.", "Start it, or unset PREFECT_API_URL.")
        if not found and answers(own):
            hint = f"Take that one by PREFECT_API_URL={own}, or another port by --port."
            raise UsageError(f"Another project's Prefect server answers at port {port}.", hint)
        self.api = found or own
        if not found:
            self._start_server(port)
        use_server(self.api)
        (home() / NOTE).write_text(json.dumps({"api": self.api}))
        return f"{self.api.removesuffix('/api')}  ({'was there' if found else 'started'})"

    def _start_server(self, port: int) -> None:
        from prefect.settings import PREFECT_HOME

        from tasks.running.run_page import answers

        PREFECT_HOME.value().mkdir(parents=True, exist_ok=True)  # without it, the server ends and prints no reason
        environ = {
            "PREFECT__SERVER_FINAL": "1",
            "PREFECT_SERVER_API_HOST": HOST,
            "PREFECT_SERVER_API_PORT": str(port),
            # the server has no authentication: no page of another site may use it through a local browser
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{HOST}:{port}",
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        }
        server = self._keep("Prefect server", [*SERVE, "--host", HOST, "--port", str(port)], environ)
        _import_ahead()
        server.require_ready(lambda: answers(self.api))

    def worker(self) -> str:
        """Starts the worker; returns the folder of its runs."""
        from apps.schedule.deployments import POOL

        words = ["prefect", "worker", "start", "--pool", POOL, "--type", "process"]
        words += ["--name", f"flywheel up {os.getpid()}"]
        self._keep("worker", words, {"PREFECT_LOGGING_LEVEL": "INFO"})
        return f"pool {POOL}, in {Path.cwd()}"

    def pages(self, file: Path | None, overrides: Sequence[str]) -> str:
        """Starts the server of the pages; returns its address."""
        words = ["apps.cli", "serve", *overrides, *(["--config", str(file)] if file else [])]
        pages = self._keep("dashboard", words)
        pages.require_ready(lambda: "http" in pages.log.read_text())
        return f"{pages.log.read_text().split('dashboard ', 1)[-1].strip()}  (dashboard and review desk)"

    def _keep(self, name: str, words: Sequence[str], environ: dict[str, str] | None = None) -> ServiceProcess:
        made = ServiceProcess(name, words, self.folder / f"{name.replace(' ', '-').lower()}.log", environ)
        self.kept.insert(0, made)
        return made


def _import_ahead() -> None:
    """Imports the flows while the server starts, since deploying reads their parameters."""
    import flows.deployed  # noqa: F401


def _print_part(name: str, text: str) -> None:
    out().print(f"{name:<9} {text}", markup=False, soft_wrap=True, highlight=False)
