"""List the environments, and check whether this machine meets their requirements."""

from dataclasses import dataclass, replace

from environments.registry import ENVIRONMENTS, environments_of
from environments.workers.build import MODULES
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from schemas.registry import options_of

WORKER = "worker"
"""Kind of environment whose modules are listed separately."""


@dataclass(frozen=True, slots=True)
class Available:
    """An environment of the config, or a built-in kind that the config does not use."""

    name: str
    """Name of its section, or of its kind if the config has no section."""
    kind: str
    configured: bool
    ready: bool
    """Whether its required probes pass. A kind that needs keys of its own is not ready."""
    lacks: str
    """Reason why the environment is not ready."""
    tasks: int | None
    sandboxes: int | None
    """Maximum number of concurrent trajectories."""


def available(config: Config) -> list[Available]:
    """Return the environments of the config in order, then the built-in kinds that the config does not use."""
    found = [_available(config, name, configured=True) for name in config.environments]
    used = {one.kind for one in found} | {getattr(section, "module", "") for section in config.environments.values()}
    kinds = [kind for kind in ENVIRONMENTS.names if kind not in used and kind != WORKER]
    return [
        *found,
        *(_kind(config, kind) for kind in kinds),
        *(_worker(config, one) for one in MODULES if one not in used),
    ]


def _worker(config: Config, module: str) -> Available:
    """Check a module of the kind `worker`, with the Python that was built for it."""
    section = options_of(ENVIRONMENTS.class_of(WORKER).section, {"kind": WORKER, "module": module}, WORKER)
    one = _available(config.model_copy(update={"environments": {module: section}}), module, configured=False)
    return replace(one, kind=f"{WORKER} {module}")


def _kind(config: Config, kind: str) -> Available:
    try:
        section = options_of(ENVIRONMENTS.class_of(kind).section, {"kind": kind}, f"environments.{kind}")
    except UsageError as error:
        return Available(kind, kind, False, False, str(error), None, None)
    alone = config.model_copy(update={"environments": {kind: section}})
    return _available(alone, kind, configured=False)


def _available(config: Config, name: str, configured: bool) -> Available:
    kind = config.environments[name].kind
    one = config.model_copy(update={"environments": {name: config.environments[name]}})
    try:
        (environment,) = environments_of(one)
        for probe in environment.probes():
            if probe.required:
                probe.examine()
        return Available(name, kind, configured, True, "", len(environment.entries), environment.size)
    except FlywheelError as error:
        return Available(name, kind, configured, False, str(error), None, None)
