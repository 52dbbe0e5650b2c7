"""Any OpenEnv server as an environment: where it is, which tasks and seeds it has, and how it is read and written."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal

import httpx
from pydantic import Field, field_validator, model_validator

from environments.environment import Environment
from environments.host import Host, NoHost
from environments.openenv.client import address_of
from environments.openenv.mapping import unknown_names
from environments.openenv.sandbox import OpenEnvReward, OpenEnvSandbox
from schemas.action import TYPES
from schemas.check import Probe
from schemas.config.section import Count, Positive, Section, Whole
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, SandboxFailure, TrajectoryFailure
from schemas.observation import Observation
from schemas.tables.task import TaskEntry
from schemas.tables.trajectory import SPLIT_STARTS, SeedSplit, split_of
from schemas.text import counted

ASK_S = 5.0
"""How long a server may take to say whether it is there."""
TOOLS = ("CallToolAction", "ListToolsAction")
"""Titles of the actions of environments that are played by calling tools, and show no screen."""


class OpenEnvTask(TaskEntry):
    """One task of the server."""

    reset: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """What `reset` is sent for it, such as `{task_id = "..."}`."""


class SeedRange(Section):
    """The server's own seeds, or the numbers of its instances, that stand for one of our splits."""

    first: Whole = 0
    count: Count
    """Training seeds go round in them; a held-out seed beyond them is refused, for it would be one of them again."""
    reset: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """What else `reset` is sent with them, such as the server's name of the split."""


class OpenEnvConfig(EnvironmentConfig):
    """An environment on an OpenEnv server (docs/sandboxes.md)."""

    url: Annotated[str, Field(min_length=1)]
    """The server's base URL."""
    token_variable: str | None = None
    """The environment variable that holds the token that it asks for."""
    sessions: Count = 4
    """How many trajectories run at the same time; the server must have as many."""
    screenshot: str = "screenshot"
    """Where in an observation the picture is, as a dotted path: base64 of a PNG or JPEG, or rows of pixels."""
    instruction: str = "instruction"
    """Where the instruction is; the task's own where there is none."""
    action_error: str = "metadata.action_error"
    """Where it says why an action came to nothing, if it goes on then."""
    truncated: str = "metadata.truncated"
    """Where it says that `done` is a limit of its own and no verdict."""
    rewards: Literal["last", "summed"] = "last"
    """Whether the last step's reward is the trajectory's, or the sum over its steps."""
    full_reward: Positive = 1.0
    """What a full success is worth there; rewards are divided by it and must be in [-1, 1] then."""
    reset: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """What every `reset` is sent."""
    seed_field: str = "seed"
    """The field of `reset` that the seed goes into, such as `index` where the server counts instances."""
    seeds: dict[SeedSplit, SeedRange] = {}  # noqa: RUF012  (pydantic copies it)
    """Which of its seeds are which of ours; of a split that is not named the seeds are ours as they are."""
    actions: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """What is sent for each type of action, with `{x}` and the like in braces; ours as they are, if none is named."""
    tasks: dict[str, OpenEnvTask] = {}  # noqa: RUF012  (pydantic copies it)
    """By template."""

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        address_of(url)
        return url

    @field_validator("actions")
    @classmethod
    def _known(cls, actions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for kind, template in actions.items():
            if kind not in TYPES:
                raise ValueError(f"there is no action {kind!r}: there are {', '.join(TYPES)}")
            if unknown := unknown_names(kind, template):
                raise ValueError(f"{kind} has no {{{unknown[0]}}}")
        return actions

    @model_validator(mode="after")
    def _apart(self) -> "OpenEnvConfig":
        for (one, ours), (other, theirs) in combinations(self.seeds.items(), 2):
            apart = ours.first + ours.count <= theirs.first or theirs.first + theirs.count <= ours.first
            if not apart and ours.reset == theirs.reset:
                raise ValueError(f"seeds.{one} and seeds.{other} overlap: what is measured would be trained on")
        return self

    def reset_of(self, template: str, seed: int) -> dict[str, Any]:
        """What `reset` is sent for a task and one of our seeds; raises SandboxFailure for a seed that there is not."""
        split = split_of(seed)
        fields = {**self.reset, **self.tasks[template].reset}
        if (theirs := self.seeds.get(split)) is None:
            return {**fields, self.seed_field: seed}
        number = seed - SPLIT_STARTS[split]
        if split != "train" and number >= theirs.count:
            raise SandboxFailure(f"seed {seed} is beyond the {counted(theirs.count, 'seed')} of `seeds.{split}`")
        return {**fields, **theirs.reset, self.seed_field: theirs.first + number % theirs.count}


class OpenEnvEnvironment(Environment[OpenEnvConfig]):
    """The tasks that the config names, on the server that it names."""

    section = OpenEnvConfig
    verifier = "openenv"
    sandbox_class = OpenEnvSandbox
    lists_elements = False

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """As the config says."""
        return self.config.tasks

    @property
    def lineage(self) -> str:
        """The server."""
        return f"OpenEnv {self.config.url}"

    @property
    def sandboxes(self) -> int:
        """Sessions."""
        return self.config.sessions

    def host(self) -> Host:
        """None of ours; raises FlywheelError if the token is not in the environment."""
        token = self._token()
        return NoHost(lambda: OpenEnvSandbox(self.config, token))

    def probes(self) -> Sequence[Probe]:
        """Whether the server answers and shows what the config reads; for `doctor`, whether its tasks start, and look
        the same twice where they are to."""
        return (
            Probe("openenv server", self._answers),
            Probe("openenv starts", lambda: asyncio.run(self._starts()), required=False),
        )

    def _token(self) -> str | None:
        if (variable := self.config.token_variable) is None:
            return None
        if not (token := os.environ.get(variable)):
            raise FlywheelError(f"`environments.{self.name}.token_variable`: {variable} holds no token.", "Set it.")
        return token

    def _answers(self) -> str:
        token = self._token()
        if not self.entries:
            raise FlywheelError(
                f"`environments.{self.name}.tasks` names no task.",
                f"Write, for example, [environments.{self.name}.tasks.NAME] with its instruction.",
            )
        health, schema = self._asked("health", token), self._asked("schema", token)
        if health.get("status") != "healthy":
            status = str(health.get("status"))[:60]
            raise FlywheelError(f"`environments.{self.name}.url`: {self.config.url} says that it is {status!r}.")
        self._require_screen(schema)
        return f"{self.config.url} is healthy"

    def _asked(self, page: str, token: str | None) -> dict[str, Any]:
        """A JSON page of the server; raises FlywheelError."""
        base = self.config.url.replace("ws", "http", 1) if self.config.url.startswith("ws") else self.config.url
        address = f"{base.rstrip('/')}/{page}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer = httpx.get(address, headers=headers, timeout=ASK_S).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise FlywheelError(
                f"`environments.{self.name}.url`: {address} gives no answer of an OpenEnv server: {reason}.",
                "Start the server, or correct the address.",
            ) from error
        return answer if isinstance(answer, dict) else {}

    def _require_screen(self, schema: Mapping[str, Any]) -> None:
        action, observation = schema.get("action"), schema.get("observation")
        if isinstance(action, Mapping) and action.get("title") in TOOLS:
            raise FlywheelError(
                f"`environments.{self.name}.url`: {self.config.url} is played by calling tools, and shows no screen.",
                "Only environments that are seen and clicked are played here.",
            )
        shown = observation.get("properties") if isinstance(observation, Mapping) else None
        first = self.config.screenshot.partition(".")[0]
        if isinstance(shown, Mapping) and shown and first not in (*shown, "metadata"):
            raise FlywheelError(
                f"`environments.{self.name}.screenshot`: observations of {self.config.url} have no `{first}`.",
                f"They have {', '.join(sorted(map(str, shown)))}.",
            )

    async def _starts(self) -> str:
        for template, entry in self.entries.items():
            first = await self._seen(template)
            if entry.deterministic and first != await self._seen(template):
                raise FlywheelError(
                    f"`environments.{self.name}.tasks.{template}` looks different when it starts again with one seed.",
                    f"Set `environments.{self.name}.tasks.{template}.deterministic` to false.",
                )
        return f"{counted(len(self.entries), 'task')} started"

    async def _seen(self, template: str) -> Observation:
        sandbox = OpenEnvSandbox(self.config, self._token())
        try:
            await sandbox.start(self.task(template), 0)
            seen = await sandbox.observe()
            await sandbox.verify(OpenEnvReward())
        except TrajectoryFailure as error:
            raise FlywheelError(f"`environments.{self.name}.tasks.{template}`: {error.reason}.") from error
        finally:
            await sandbox.stop()
        return seen
