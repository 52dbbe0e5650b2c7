"""Run any OpenEnv server as an environment, and check that its tasks can be played."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import httpx
from pydantic import Field, field_validator

from environments.host import Host, NoHost
from environments.openenv.client import WireClient, address_of
from environments.openenv.foreign import ForeignConfig, ForeignEnvironment, first_of
from environments.openenv.sandbox import OpenEnvSandbox
from schemas.config.section import Count
from schemas.failure import FlywheelError, Probe
from schemas.observation import Observation

ASK_S = 5.0
"""Seconds that a server may take to answer the check that it is reachable."""
TOOLS = ("CallToolAction", "ListToolsAction")
"""Titles of the actions of environments that are played with tool calls and have no screen."""


class OpenEnvConfig(ForeignConfig):
    """An environment on an OpenEnv server (docs/sandboxes.md)."""

    url: Annotated[str, Field(min_length=1)]
    """Base URL of the server."""
    token_variable: str | None = None
    """Environment variable with the server's token."""
    sessions: Count = 4
    """Concurrent trajectories; the server must allow as many sessions."""

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        address_of(url)
        return url


class OpenEnvEnvironment(ForeignEnvironment[OpenEnvConfig]):
    """The tasks that the config names, on the server that it names."""

    section = OpenEnvConfig

    @property
    def lineage(self) -> str:
        """Returns the server's address."""
        return f"OpenEnv {self.config.url}"

    @property
    def sandboxes(self) -> int:
        """Number of sessions."""
        return self.config.sessions

    def host(self) -> Host:
        """Returns a host without a process; raises FlywheelError if the token is not in the environment."""
        token = self.token_in(self.config.token_variable)
        return NoHost(lambda: self._sandbox(token))

    def probes(self) -> Sequence[Probe]:
        """Checks that the server answers and its observations have the fields of the config. For `doctor`, it also
        checks that tasks start, and look the same twice if they are deterministic."""
        return (
            Probe("openenv server", self._answers),
            Probe("openenv starts", lambda: asyncio.run(self.starts()), required=False),
        )

    async def seen(self, template: str, seed: int) -> Observation:
        """Returns the first observation of a task in a new session."""
        return await first_of(self._sandbox(self.token_in(self.config.token_variable)), self.task(template), seed)

    def _sandbox(self, token: str | None) -> OpenEnvSandbox:
        return OpenEnvSandbox(self.config, lambda: WireClient(self.config.url, token))

    def _answers(self) -> str:
        token = self.token_in(self.config.token_variable)
        if not self.entries:
            raise FlywheelError(
                f"`environments.{self.name}.tasks` names no task.",
                f"Write, for example, [environments.{self.name}.tasks.NAME] with its instruction.",
            )
        health, schema = self._asked("health", token), self._asked("schema", token)
        if health.get("status") != "healthy":
            status = str(health.get("status"))[:60]
            raise FlywheelError(f"`environments.{self.name}.url`: {self.config.url} reports the status {status!r}.")
        self._require_screen(schema)
        return f"{self.config.url} is healthy"

    def _asked(self, page: str, token: str | None) -> dict[str, Any]:
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
