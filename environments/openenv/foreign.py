"""Define external environments: the config of their tasks and seeds, and of the mapping of their messages."""

from abc import abstractmethod
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Literal, TypeVar

from pydantic import field_validator, model_validator

from common.text import counted
from environments.environment import Environment
from environments.openenv.mapping import unknown_names
from environments.openenv.sandbox import OpenEnvReward, OpenEnvSandbox
from schemas.action import TYPES
from schemas.config.section import Count, Positive, Section, Whole
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, SandboxFailure, TrajectoryFailure, all_of
from schemas.observation import Observation
from schemas.tables.task import GuiTask, TaskEntry
from schemas.tables.trajectory import SPLIT_STARTS, SeedSplit, split_of


class ForeignTask(TaskEntry):
    """One task of an external environment."""

    reset: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Fields of `reset` for this task, such as `{task_id = "..."}`."""


class SeedRange(Section):
    """Seeds of the environment, or numbers of its instances, for one of the splits."""

    first: Whole = 0
    count: Count
    """Number of these seeds. Training seeds wrap around; a held-out seed beyond them is refused, because it would
    repeat one."""
    reset: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Further fields of `reset` with these seeds, such as the server's name of the split."""


class SeededConfig(EnvironmentConfig):
    """Keys of an environment with seeds of its own."""

    seeds: dict[SeedSplit, SeedRange] = {}  # noqa: RUF012  (pydantic copies it)
    """Seeds of the environment for each split, such as `validation = {first = 42, count = 1}`. Seeds of other splits
    are sent unchanged."""

    @model_validator(mode="after")
    def _apart(self) -> "SeededConfig":
        for (one, ours), (other, theirs) in combinations(self.seeds.items(), 2):
            apart = ours.first + ours.count <= theirs.first or theirs.first + theirs.count <= ours.first
            if not apart and ours.reset == theirs.reset:
                raise ValueError(f"seeds.{one} and seeds.{other} overlap: evaluation seeds would be trained on")
        return self


class ForeignConfig(SeededConfig):
    """An environment that answers OpenEnv's messages (docs/sandboxes.md)."""

    screenshot: str = "screenshot"
    """Dotted path of the screenshot in an observation: base64 of a PNG or JPEG, or rows of pixels."""
    instruction: str = "instruction"
    """Dotted path of the instruction in an observation; without one, the task's own instruction is used."""
    action_error: str = "metadata.action_error"
    """Dotted path of the reason for an action without effect, if the episode continues."""
    truncated: str = "metadata.truncated"
    """Dotted path of the flag that `done` is a limit of the environment and no verdict."""
    rewards: Literal["last", "summed"] = "last"
    """Reward of a trajectory. `last`: the last step's. `summed`: the sum over its steps."""
    full_reward: Positive = 1.0
    """Reward of a full success. Rewards are divided by it and must then be in [-1, 1]."""
    reset: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Fields of every `reset`."""
    seed_field: str = "seed"
    """Field of `reset` for the seed, such as `index` if the server counts instances."""
    actions: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Message for each action type, with placeholders such as `{x}`. If empty, actions are sent in flywheel's own
    format."""
    tasks: dict[str, ForeignTask] = {}  # noqa: RUF012  (pydantic copies it)
    """Tasks by template."""

    @field_validator("actions")
    @classmethod
    def _known(cls, actions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for kind, template in actions.items():
            if kind not in TYPES:
                raise ValueError(f"there is no action {kind!r}: there are {', '.join(TYPES)}")
            if unknown := unknown_names(kind, template):
                raise ValueError(f"{kind} has no {{{unknown[0]}}}")
        return actions

    def takes(self, template: str) -> frozenset[str]:
        """Returns the types of action that a task accepts; empty if unknown."""
        return frozenset(self.actions)

    def fields_of(self, template: str) -> dict[str, Any]:
        """Returns the fields of `reset` for a task with any seed."""
        return {**self.reset, **self.tasks[template].reset}

    def reset_of(self, template: str, seed: int) -> dict[str, Any]:
        """Returns the fields of `reset` for a task and a seed of this project; raises SandboxFailure for a seed beyond
        the range."""
        split = split_of(seed)
        fields = self.fields_of(template)
        if (theirs := self.seeds.get(split)) is None:
            return {**fields, self.seed_field: seed}
        number = seed - SPLIT_STARTS[split]
        if split != "train" and number >= theirs.count:
            raise SandboxFailure(f"seed {seed} is beyond the {counted(theirs.count, 'seed')} of `seeds.{split}`")
        return {**fields, **theirs.reset, self.seed_field: theirs.first + number % theirs.count}


Options = TypeVar("Options", bound=ForeignConfig)


class ForeignEnvironment(Environment[Options]):
    """The config's tasks in an external environment."""

    verifier = "openenv"
    sandbox_class = OpenEnvSandbox
    lists_elements = False

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the tasks of the config."""
        return self.config.tasks

    @abstractmethod
    async def seen(self, template: str, seed: int) -> Observation:
        """Returns the first observation of a task in a new sandbox; raises TrajectoryFailure and FlywheelError."""

    async def starts(self) -> str:
        """Checks that tasks start with a seed of each split, and look the same twice if deterministic; raises one
        FlywheelError for all failing tasks."""
        errors = []
        for template, entry in self.entries.items():
            try:
                await self._looked_at(template, entry.deterministic)
            except FlywheelError as error:
                errors.append(error)
        if errors:
            raise all_of(errors)
        return f"{counted(len(self.entries), 'task')} started"

    async def _looked_at(self, template: str, deterministic: bool) -> None:
        first, *_ = [await self._first(template, seed) for seed in SPLIT_STARTS.values()]
        if deterministic and first != await self._first(template, 0):
            raise FlywheelError(
                f"`environments.{self.name}.tasks.{template}` looks different when it starts again with one seed.",
                f"Set `environments.{self.name}.tasks.{template}.deterministic` to false.",
            )

    async def _first(self, template: str, seed: int) -> Observation:
        try:
            return await self.seen(template, seed)
        except TrajectoryFailure as error:
            where = f"`environments.{self.name}.tasks.{template}`, {split_of(seed)} seed {seed}"
            raise FlywheelError(f"{where}: {error.reason}.") from error


async def first_of(sandbox: OpenEnvSandbox, task: GuiTask, seed: int) -> Observation:
    """Returns the first observation of a task in a new sandbox, and stops the sandbox; raises TrajectoryFailure."""
    try:
        await sandbox.start(task, seed)
        shown = await sandbox.observe()
        await sandbox.verify(OpenEnvReward())
    finally:
        await sandbox.stop()
    return shown
