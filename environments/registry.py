"""List environments and verifiers, and make the ones that a config or a task names."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from environments.environment import Environment
from environments.verifier import Verifier
from schemas.config import Config
from schemas.failure import FlywheelError
from schemas.registry import Registry
from schemas.tables.task import JUDGED, GuiTask

ENVIRONMENTS: Registry[Environment[Any]] = Registry(
    "environments",
    Environment,
    {
        "miniwob": "environments.miniwob.environment:MiniwobEnvironment",
        "miniwob-all": "environments.miniwob.browsergym:BrowserGymEnvironment",
        "fake": "environments.fake:FakeEnvironment",
        "site": "environments.site.environment:SiteEnvironment",
        "html": "environments.html.environment:HtmlEnvironment",
        "pages": "environments.pages.environment:PagesEnvironment",
        "webapp": "environments.webapp.environment:WebAppEnvironment",
        "hybrid": "environments.hybrid.environment:HybridEnvironment",
        "openenv": "environments.openenv.environment:OpenEnvEnvironment",
        "games": "environments.games.environment:GamesEnvironment",
        "repair": "environments.hybrid.repair.environment:RepairEnvironment",
        "search": "environments.search.environment:SearchEnvironment",
        "desktop": "environments.desktop.environment:DesktopEnvironment",
        "uda": "environments.desktop.uda.environment:UdaEnvironment",
        "uda-hybrid": "environments.hybrid.uda.environment:UdaHybridEnvironment",
        "osworld": "environments.osworld.environment:OsworldEnvironment",
        "android": "environments.android.environment:AndroidEnvironment",
        "mobilegym": "environments.mobilegym.environment:MobileGymEnvironment",
        "androidworld": "environments.androidworld.environment:AndroidWorldEnvironment",
        "worker": "environments.workers.environment:WorkerEnvironment",
    },
)
VERIFIERS: Registry[Verifier] = Registry(
    "tasks.verifier",
    Verifier,
    {
        "miniwob": "environments.chromium.in_page:InPageReward",
        "html": "environments.chromium.in_page:InPageReward",
        "pages": "environments.chromium.in_page:InPageReward",
        "fake": "environments.fake:FakeVerifier",
        "state": "environments.sandbox:StateReward",
        "webapp": "environments.webapp.environment:WebAppReward",
        "hybrid": "environments.hybrid.scripted:HybridReward",
        "openenv": "environments.openenv.sandbox:OpenEnvReward",
        "games": "environments.games.environment:GameScore",
        "repair": "environments.hybrid.repair.environment:RepairReward",
        "search": "environments.search.environment:SearchReward",
        "desktop": "environments.desktop.sandbox:DesktopReward",
        "uda": "environments.desktop.uda.environment:UdaReward",
        "uda-hybrid": "environments.hybrid.uda.environment:UdaHybridReward",
        "osworld": "environments.osworld.environment:OsworldReward",
        "android": "environments.android.sandbox:AndroidReward",
    },
)


def environments_of(config: Config, tasks: Iterable[GuiTask] | None = None) -> list[Environment[Any]]:
    """Makes a config's environments, in its order; only the environments of `tasks`, if given."""
    wanted = None if tasks is None else {task.environment for task in tasks}
    return [
        ENVIRONMENTS.class_of(section.kind)(name, section)
        for name, section in config.environments.items()
        if wanted is None or name in wanted
    ]


def require(environments: Iterable[Environment[Any]]) -> None:
    """Checks that this machine can run each environment; raises FlywheelError that names the missing requirement."""
    for probe in (probe for one in environments for probe in one.probes() if probe.required):
        probe.examine()


def usable(config: Config) -> list[Environment[Any]]:
    """Returns a config's environments without those of `left_out`."""
    out = left_out(config)
    return [one for one in environments_of(config) if one.name not in out]


def left_out(config: Config) -> dict[str, str]:
    """Returns the config's optional environments that this machine cannot run, each with the missing requirement."""
    optional = [one for one in environments_of(config) if one.config.optional]
    lacking = {one.name: lack_of(one.name, one.config.kind, one.config.model_dump_json()) for one in optional}
    return {name: lack for name, lack in lacking.items() if lack}


@cache
def lack_of(name: str, kind: str, section: str) -> str:
    """Describes the requirement of an environment that this machine lacks; empty if it lacks none.

    The answer is cached for the process, whose suite does not change. A missing requirement is checked twice, since the
    machine may be busy.

    Args:
        name: name of the section.
        kind: kind in the section.
        section: the section as JSON.
    """
    known = ENVIRONMENTS.class_of(kind)
    environment, lack = known(name, known.section.model_validate_json(section)), ""
    for _ in range(2):
        try:
            require([environment])
        except FlywheelError as error:
            lack = str(error)
        else:
            return ""
    return lack


def size_of(environments: Iterable[Environment[Any]]) -> int:
    """Returns the number of concurrent trajectories of all environments together."""
    return sum(environment.size for environment in environments)


@cache
def verifier_of(name: str, key: str = "") -> Verifier | None:
    """Returns a task's verifier; None if a judge scores its trajectories.

    Args:
        name: name of the verifier in the task.
        key: the config key of the name, if there is one.

    Raises:
        UsageError: the verifier does not exist.
    """
    return None if name == JUDGED else VERIFIERS.class_of(name, key)()
