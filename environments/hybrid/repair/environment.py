"""Run repairs of software as tasks: a repository has a fault, and hidden tests must pass again without breaking others.

A policy works in a hybrid workspace, with a shell, an editor and a list of files. `faults` makes verified faults in
packages, and `judge` runs the hidden tests. Faults of training, validation and test seeds are in other functions.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from environments.chromium.browser import Browser
from environments.hybrid.bubblewrap import INSTALL, SandboxLimits
from environments.hybrid.environment import STOPS_S, HybridConfig, HybridEnvironment
from environments.hybrid.repair.bundles import Bundle, issue_of, place_of, read_bundles, verified
from environments.hybrid.repair.faults import Prepared, prepared, runs_tests
from environments.hybrid.repair.judge import remaining_faults, repaired
from environments.hybrid.repair.runner import Settings
from environments.hybrid.repair.sources import MAX_FILE, MAX_FILES, Repository, at, installed
from environments.hybrid.repair.suites import libraries
from environments.hybrid.repair.tasks import RepairInstance, of_fault
from environments.hybrid.sandbox import HybridSandbox
from environments.placeholder import filled_in_order
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.config.section import Count, Positive
from schemas.failure import FlywheelError, Probe, TrajectoryFailure, UsageError
from schemas.observation import Outcome
from schemas.tables.task import GuiTask, TaskEntry
from schemas.tables.trajectory import split_of

FAULT = 'Repair the Python package "{}" in this folder. {{}}'
ISSUE = (
    'Resolve this issue of the repository in this folder, and finish. "PYTHONPATH=/opt/libraries python3 -m pytest" '
    "runs its tests. {}"
)
PACKAGES = (
    "cachetools", "cronsim", "humanize", "idna", "jmespath", "jsonpointer", "mistune", "packaging", "pathspec",
    "semver", "sortedcontainers", "toml",
)  # fmt: skip
"""Small packages of pure Python that are installed with flywheel."""
MAX_STEPS = 40
T = TypeVar("T")


class RepairConfig(HybridConfig):
    """Repositories with a fault, an editor and an isolated shell (docs/repair.md)."""

    start_timeout_s: Positive = 180.0
    """Maximum seconds that a sandbox may take to start a task. The first start of a package makes its faults."""
    memory_mib: Annotated[int, Field(ge=64)] = 512
    """Maximum memory in MiB of a shell's processes together, and of the hidden tests."""
    cpu_s: Count = 300
    """Maximum processor seconds of a shell's processes together, and of the hidden tests."""
    packages: tuple[str, ...] = PACKAGES
    """Installed packages of pure Python, each a task. Its functions are changed, and recorded calls are its tests."""
    sources: tuple[str, ...] = ()
    """Folders and source archives (`.tar.gz`, `.zip`) with further packages, each a task."""
    bundles: str = ""
    """JSON Lines file with instances in SWE-bench's form, each a task (docs/repair.md)."""
    repositories: str = ""
    """Folder with the repositories of `bundles`: clones, git bundles or folders, named `owner__name` or `name`."""
    faults: Count = 24
    """Faults that are made in each package or source. A seed chooses one of them."""
    libraries: str = ""
    """Folder with pytest and the repositories' dependencies, such as `pip install --target` makes. If empty,
    flywheel's own pytest runs the tests."""
    python: str = "python3"
    """Interpreter below `/usr` that runs the repositories' code."""
    tests_s: Positive = 10.0
    """Maximum seconds of the hidden tests of a task."""

    @property
    def limits(self) -> SandboxLimits:
        """Limits of each sandbox, whose repository may have many files."""
        return replace(super().limits, files=2 * MAX_FILES)

    @model_validator(mode="after")
    def _tests_in_time(self) -> Self:
        if self.tests_s + STOPS_S > self.step_timeout_s:
            raise ValueError(f"step_timeout_s is {self.step_timeout_s:g}: tests_s and {STOPS_S:g} s more must fit")
        return self


class RepairSandbox(HybridSandbox):
    """A sandbox with a repository that has a fault."""

    def __init__(self, browser: Browser, environment: "RepairEnvironment") -> None:
        config = environment.repairs
        super().__init__(browser, config, config.size, {}, config.limits, config.command_s)
        self._environment = environment

    async def reason(self) -> str:
        """Runs the hidden tests and returns what fails; empty if nothing does. Ends the policy's processes before."""
        assert self._terminal is not None and isinstance(self.instance, RepairInstance)
        check, config = self.instance.check, self._environment.repairs
        assert check is not None
        self._terminal.bubblewrap.signal(signal.SIGKILL)
        work = self.workspace.files

        def read(path: str) -> bytes | None:
            seen = work.seen(path, MAX_FILE)
            return seen.content if seen is not None else None

        files = repaired(check, work.paths(2 * MAX_FILES) or (), read)
        return await remaining_faults(check, files, config.limits, self._environment.settings(check.repository))

    async def _made(self, task: GuiTask, seed: int) -> tuple[str, RepairInstance]:
        instance = await self._environment.instance(task.template, seed)
        assert instance.check is not None
        self._mounts = self._environment.settings(instance.check.repository).mounts
        return filled_in_order(task.instruction, instance.words), instance


class RepairReward(Verifier):
    """Rewards 1 if all hidden tests pass, and 0 otherwise, with the reason."""

    reads: ClassVar[type] = RepairSandbox

    async def outcome(self, sandbox: RepairSandbox) -> Outcome:
        """Runs the hidden tests on the current source files."""
        reason = await sandbox.reason()
        return Outcome(done=not reason or sandbox.concluded is not None, reward=float(not reason), reason=reason)


class RepairEnvironment(HybridEnvironment):
    """A task for each package, source and bundle."""

    section = RepairConfig
    sandbox_class = RepairSandbox
    verifier = "repair"
    origin = None

    def __init__(self, name: str, config: RepairConfig) -> None:
        super().__init__(name, config)
        self.repairs = config
        self._preparing: dict[str, asyncio.Future[Any]] = {}

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns tasks by template: `repair-` and the name of the package or source, or the id of the bundle."""
        return {
            f"repair-{name}": TaskEntry(
                instruction=ISSUE if kind == "bundle" else FAULT.format(name),
                tags=("repair", kind),
                max_steps=MAX_STEPS,
                lineage=self._origin(name, kind),
            )
            for name, kind in self._named.items()
        }

    @property
    def lineage(self) -> str:
        """Returns the origin of the tasks."""
        return "flywheel repair 1"

    async def instance(self, template: str, seed: int) -> RepairInstance:
        """Returns the instance of a task and a seed; makes the package's faults if they were not made before.

        Raises:
            UsageError: the package or the source has no faults, or the bundle's tests are not as it says.
        """
        name = template.removeprefix("repair-")
        if name in self._bundles:
            return await self._once(name, lambda: self._verified(self._bundles[name]))
        repository, faults = self.repository(name), await self.faults(template)
        chance, chosen = random.Random(f"{template} {seed}"), faults.of_split(split_of(seed))
        return of_fault(repository, faults, chosen[seed % len(chosen)], chance)

    async def faults(self, template: str) -> Prepared:
        """Returns the faults of a task, for all seeds; raises UsageError as `instance` does."""
        name = template.removeprefix("repair-")
        key, repository = self._key("sources" if name in self._sources else "packages"), self.repository(name)
        settings = self.settings(repository)
        return await self._once(name, lambda: prepared(repository, self.repairs.faults, settings, key))

    def repository(self, name: str) -> Repository:
        """Reads a package or source; raises UsageError if it is none."""
        if name not in self._repositories:
            self._repositories[name] = (
                at(self._sources[name], self._key("sources"))
                if name in self._sources
                else installed(name, self._key("packages"))
            )
        return self._repositories[name]

    def settings(self, repository: Repository) -> Settings:
        """Returns how the code of a repository runs."""
        folder = self.repairs.libraries
        if folder and not Path(folder).expanduser().is_dir():
            raise UsageError(f"`{self._key('libraries')}`: {folder} is no folder.", "Name a folder with packages.")
        mounts = libraries(folder, runs_tests(repository), repository.tops)
        return Settings(mounts, self.repairs.python, self.repairs.tests_s)

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox with a page and a sandboxed shell."""
        return RepairSandbox(browser, self)

    def probes(self) -> Sequence[Probe]:
        """Checks the isolation, the repositories and the browser; `doctor` also makes all faults and runs all tests."""
        isolation, *others = super().probes()
        return (
            isolation,
            Probe("repositories", self._listed),
            *others,
            Probe("hidden tests", self._examined, required=False),
        )

    @cached_property
    def _sources(self) -> dict[str, Path]:
        found = dict[str, Path]()
        for given in self.repairs.sources:
            path = Path(given).expanduser().absolute()
            name = path.name.removesuffix(".tar.gz").removesuffix(".tgz").removesuffix(".zip")
            if name in found or name in self.repairs.packages:
                raise UsageError(f"`{self._key('sources')}`: two repositories are named {name}.", "Rename a folder.")
            found[name] = path
        return found

    @cached_property
    def _bundles(self) -> dict[str, Bundle]:
        if not self.repairs.bundles:
            return {}
        return read_bundles(Path(self.repairs.bundles).expanduser().absolute(), self._key("bundles"))

    @property
    def _named(self) -> dict[str, str]:
        kinds = {"package": self.repairs.packages, "source": self._sources, "bundle": self._bundles}
        return {name: kind for kind, names in kinds.items() for name in names}

    def _origin(self, name: str, kind: str) -> str | None:
        """Returns the version of a package or the commit of a bundle; None if there is none."""
        if kind == "bundle":
            return f"{self._bundles[name].repo} {self._bundles[name].base_commit}".strip()
        try:
            return f"{name} {metadata.version(name)}" if kind == "package" else None
        except (metadata.PackageNotFoundError, ValueError):
            return None

    @cached_property
    def _repositories(self) -> dict[str, Repository]:
        return {}

    def _key(self, field: str) -> str:
        return f"environments.{self.name}.{field}"

    async def _once(self, name: str, make: Callable[[], Awaitable[T]]) -> T:
        """Makes something once for all leases; a lease that is given up meanwhile does not stop the others' wait."""
        waiting = self._preparing.get(name)
        failed = waiting is not None and waiting.done() and (waiting.cancelled() or waiting.exception() is not None)
        if waiting is None or failed or waiting.get_loop() is not asyncio.get_running_loop():
            waiting = self._preparing[name] = asyncio.ensure_future(make())
        return await asyncio.shield(waiting)

    async def _verified(self, bundle: Bundle) -> RepairInstance:
        key = self._key("bundles")
        issue = await asyncio.to_thread(issue_of, bundle, self.repairs.repositories, key)
        return await verified(issue, self.repairs.limits, self.settings(issue.repository), key)

    def _listed(self) -> str:
        for name, kind in self._named.items():
            if kind == "bundle":
                place_of(self._bundles[name], self.repairs.repositories, self._key("bundles"))
            else:
                self.settings(self.repository(name))
        return f"{len(self._named)} repositories"

    async def _all_made(self) -> int:
        for name in self._named:
            await self.instance(f"repair-{name}", 0)
        return len(self._named)

    def _examined(self) -> str:
        with ThreadPoolExecutor(1) as thread:  # the caller may have its own loop
            try:
                count = thread.submit(asyncio.run, self._all_made()).result()
            except TrajectoryFailure as error:
                raise FlywheelError(f"No repository can be run here: {error.reason}.", INSTALL) from error
        return f"the tests of {count} repositories notice their faults"
