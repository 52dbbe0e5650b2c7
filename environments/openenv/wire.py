"""Define this project's sandboxes in OpenEnv's protocol: the fields of actions, observations and episodes."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

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
