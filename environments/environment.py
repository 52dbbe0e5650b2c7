"""Define an environment: a kind of sandbox with its tasks, verifiers and config section.

An external environment is a subclass that the config names by its dotted path (`docs/extend.md`). Built-in environments
are registered by dotted paths, too.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar, final

from environments.host import Host
from environments.sandbox import Sandbox
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, Probe
from schemas.tables.task import GuiTask, Split, TaskEntry
from schemas.world import Layout, World

Options = TypeVar("Options", bound=EnvironmentConfig)


class Environment(ABC, Generic[Options]):
    """One environment of the suite.

    Args:
        name: name of the section `environments.NAME`, and first part of the tasks' ids.
        config: that section.
    """

    section: ClassVar[type[EnvironmentConfig]] = EnvironmentConfig
    """Class of the environment's config section."""
    verifier: ClassVar[str]
    """Default verifier of the environment's tasks: a built-in verifier, a dotted path, or `judge`. A task may name
    another."""
    sandbox_class: ClassVar[type[Sandbox]] = Sandbox
    """Class of the environment's sandboxes; a verifier that reads another class cannot score its tasks."""
    lists_elements: ClassVar[bool] = True
    """Whether observations list screen elements on request. If not, the explorer acts at random points, no grounding
    data is made, and no task can be for practice."""

    origin: ClassVar[str | None] = None
    """Origin of the tasks, with the version, if it is the same for every config."""
    license: ClassVar[str] = ""
    """Licence of the tasks and their pages, for cards of exports; empty if it is unknown or depends on the config."""

    def __init__(self, name: str, config: Options) -> None:
        self.name, self.config = name, config

    @property
    @abstractmethod
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the environment's tasks by template."""

    @property
    def hosts(self) -> int:
        """Number of hosts for sandboxes."""
        return 1

    @property
    def sandboxes(self) -> int:
        """Number of sandboxes that each host holds at the same time."""
        return 1

    @property
    def spares(self) -> int:
        """Number of additional warm hosts, which replace hosts that die."""
        return 0

    @property
    def host_idle_s(self) -> float | None:
        """Seconds without a lease after which a host is ended until it is needed again; None keeps hosts."""
        return None

    @abstractmethod
    def host(self) -> Host:
        """Makes a host for sandboxes; raises FlywheelError if none is available."""

    @property
    def lineage(self) -> str | None:
        """Returns the origin of the tasks, with the version."""
        return self.origin

    @property
    def world(self) -> World | None:
        """Returns the world from which new tasks are made; None if sandboxes cannot be set to a state."""
        return None

    @property
    def layout(self) -> Layout | None:
        """Returns the layout of linked pages, if `world` has a site; the cost of made tasks is measured on it."""
        return None

    def probes(self) -> Sequence[Probe]:
        """Returns the environment's requirements on this machine."""
        return ()

    @final
    def token_in(self, variable: str | None) -> str | None:
        """Reads a server's token from the environment variable that `token_variable` names, if it names one; raises
        FlywheelError if the variable is not set."""
        token = os.environ.get(variable) if variable is not None else None
        if variable is not None and not token:
            raise FlywheelError(f"`environments.{self.name}.token_variable`: {variable} holds no token.", "Set it.")
        return token

    @property
    @final
    def size(self) -> int:
        """Number of concurrent trajectories."""
        return self.hosts * self.sandboxes

    @final
    def task(self, template: str, split: Split = "train", max_steps: int | None = None) -> GuiTask:
        """Returns the task of an existing template; `max_steps` replaces the catalog's."""
        entry = self.entries[template]
        return GuiTask(
            task_id=f"{self.name}/{template}",
            environment=self.name,
            template=template,
            instruction=entry.instruction,
            tags=list(entry.tags),
            split=split,
            max_steps=max_steps or entry.max_steps,
            verifier=entry.verifier or self.verifier,
            lineage=entry.lineage or self.lineage,
            deterministic=entry.deterministic,
            threshold=entry.threshold,
            graded=entry.graded,
        )
