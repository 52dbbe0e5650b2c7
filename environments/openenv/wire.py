"""Define this project's sandboxes in OpenEnv's protocol: the fields of actions, observations and episodes.

For blocking code (gymnasium's loops, TRL's tools, a notebook), the module wraps the client. The event loop runs in its
own thread, so that the server's pings are answered while a model generates.
"""

import asyncio
import base64
import json
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from environments.openenv.client import Fields, ServerLost, StepResponse, WireClient
from schemas.action import Action
from schemas.observation import Observation, elements_json


class GuiObservation(BaseModel):
    """The observation of a step."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    screenshot: str
    """A PNG in base64."""
    width: int
    """Width of the screenshot in pixels; it may change between steps."""
    height: int
    instruction: str
    elements: list[tuple[str, str, tuple[float, float, float, float], int, str]] | None = None
    """Name, kind, box in fractions of the screen, whether it is interactive, and value of each screen element, if
    `reset` got `elements`: true."""


class GuiState(BaseModel):
    """Facts about an episode that observations do not have."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    episode_id: str | None = None
    step_count: int = 0
    task_id: str | None = None
    seed: int | None = None
    environment: str | None = None
    lease_s: float = 0.0
    """Seconds since the sandbox was leased."""


def schemas() -> dict[str, Any]:
    """Returns the JSON schemas of `action`, `observation` and `state`."""
    action = {**TypeAdapter(Action).json_schema(), "title": "GuiAction", "type": "object"}
    return {
        "action": action,
        "observation": GuiObservation.model_json_schema(),
        "state": GuiState.model_json_schema(),
    }


def observation_of(seen: Observation, elements: bool) -> dict[str, Any]:
    """Makes the fields of a `GuiObservation`."""
    fields: dict[str, Any] = {
        "screenshot": base64.b64encode(seen.png).decode("ascii"),
        "width": seen.width,
        "height": seen.height,
        "instruction": seen.instruction,
    }
    return {**fields, "elements": json.loads(elements_json(seen.elements))} if elements else fields


def observed(
    observation: Mapping[str, Any], reward: float | None, done: bool, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Makes the message that answers `reset` and `step`."""
    data = {"observation": observation, "reward": reward, "done": done, "metadata": metadata}
    return {"type": "observation", "data": data}


def refused(code: str, message: str, **more: Any) -> dict[str, Any]:
    """Makes the message that refuses a request."""
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def text_of(message: Mapping[str, Any]) -> str:
    """Encodes a message as JSON. The screenshot is inserted unescaped, since base64 needs no escaping, and the search
    for such characters would take a third of a step with a large screen."""
    data = message["data"]
    observation = data.get("observation")
    if observation is None:
        return _json(message)
    bare = {**message, "data": {**data, "observation": {**observation, "screenshot": ""}}}
    key = '"screenshot":"'  # unescaped, so it is no part of a text
    return _json(bare).replace(key, key + observation["screenshot"], 1)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


T = TypeVar("T")
WAIT_S = 60.0
"""Default seconds to wait for an answer."""


class BlockingClient:
    """Runs episodes in turn; only the next `reset` reopens a lost connection.

    Args:
        url: the server's base URL.
        token: token that the server requires, if any.
        wait_s: time limit of an answer, in seconds; a late answer is never taken for the answer to another message.
    """

    def __init__(self, url: str, token: str | None = None, wait_s: float = WAIT_S) -> None:
        self._url, self._token, self._wait_s = url, token, wait_s
        self._client: WireClient | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flywheel-wire", daemon=True)
        self._thread.start()

    def reset(self, **fields: Any) -> StepResponse:
        """Begins an episode; raises Refused or Lost, the latter also after `close`."""
        if self._loop.is_closed():
            raise ServerLost("the client is closed: make another one")
        if self._client is None or not self._client.alive:
            client = WireClient(self._url, self._token)
            self._waited("connect", client.open())
            self._client = client
        return self._waited("reset", self._client.reset(fields))

    def step(self, action: Fields) -> StepResponse:
        """Performs an action; raises Refused or Lost, the latter also if no episode has begun."""
        if self._client is None:
            raise ServerLost("no episode has begun, or its connection was lost: reset first")
        return self._waited("step", self._client.step(action))

    def close(self) -> None:
        """Ends the session and its thread; may be called again."""
        if self._loop.is_closed():
            return
        client, self._client = self._client, None
        if client is not None:
            self._run(client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self._wait_s)
        self._loop.close()

    def _waited(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(self._wait_s):
                return await work

        try:
            return self._run(in_time())
        except (ServerLost, TimeoutError, KeyboardInterrupt) as error:
            lost, self._client = self._client, None
            if lost is not None:
                self._loop.call_soon_threadsafe(lost.drop)
            if isinstance(error, TimeoutError):
                raise ServerLost(f"{self._url} gave no answer to {what} within {self._wait_s:g} s") from error
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
