"""Defines parsed ATIF documents: the fields that this project uses. Other fields are kept unchanged.

Source: harbor 0.26.0, `harbor/models/trajectories` (ATIF v1.8).
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from common.text import Storable
from curation.converters.exchanged import Metadata
from curation.converters.files import OpenModel, fields_of

OURS, COMPUTER_1 = "flywheel", "computer-1"
"""Names of agents."""
BETWEEN = "between_actions"
"""Key in a result's `extra`: the screen was recorded before the next call of the same reply, and no model saw it."""


class Agent(OpenModel):
    """The acting agent."""

    name: str = ""


class ToolCall(OpenModel):
    """A call of a tool."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)

    def ordered(self) -> "ToolCall":
        """Return the call with its arguments sorted by name, as a lake stores them: texts of it show the order."""
        arguments = json.loads(json.dumps(self.arguments, sort_keys=True))
        return self.model_copy(update={"arguments": arguments})


class ImageSource(OpenModel):
    """Place of a picture or a sound; embedded content (`data`, in base64) becomes a data URL."""

    path: str

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        fields = fields_of(value)
        if fields.get("path") is not None or not isinstance(fields.get("data"), str):
            return value
        others = {name: one for name, one in fields.items() if name != "data"}
        return {**others, "path": f"data:;base64,{fields['data']}"}


class ContentPart(OpenModel):
    """A part of a message or of a result."""

    type: Literal["text", "image", "audio"]
    text: Storable | None = None
    source: ImageSource | None = None


class CallResult(OpenModel):
    """Result of a call."""

    source_call_id: str | None = None
    content: str | list[ContentPart] | None = None
    extra: dict[str, Any] | None = None

    @property
    def between(self) -> bool:
        """Whether the result's screen lies between two actions of one reply."""
        return (self.extra or {}).get(BETWEEN) is True


class AtifObservation(OpenModel):
    """Result of a step."""

    results: list[CallResult] = Field([])


class AtifStep(OpenModel):
    """Action of the user, the system or the agent."""

    source: Literal["system", "user", "agent"]
    message: Storable | list[ContentPart] = ""
    reasoning_content: Storable | None = None
    tool_calls: list[ToolCall] | None = None
    observation: AtifObservation | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None

    @property
    def context(self) -> bool:
        """Whether the step is only context: it was copied from another trajectory, or no model made it."""
        return bool(self.is_copied_context) or self.llm_call_count == 0


class Extra(OpenModel):
    """Additional data of a document."""

    flywheel: Metadata | None = None


class Document(OpenModel):
    """A trajectory."""

    schema_version: str = ""
    trajectory_id: Storable | None = None
    session_id: Storable | None = None
    agent: Agent = Agent()
    steps: list[AtifStep]
    final_metrics: dict[str, Any] | None = None
    extra: Extra | None = None


def text_of(message: str | list[ContentPart]) -> str:
    """Return the text of a message."""
    return message if isinstance(message, str) else "\n".join(part.text for part in message if part.text)


def parts_of(step: AtifStep) -> Iterator[tuple[str, str | None, ContentPart]]:
    """Yield the parts of a step, each with the id of its call, and the parts of the observation last."""
    if isinstance(step.message, list):
        yield from ((f"message.{at}", None, part) for at, part in enumerate(step.message))
    for number, result in enumerate(step.observation.results if step.observation else []):
        for at, part in enumerate(result.content if isinstance(result.content, list) else ()):
            yield f"observation.results.{number}.content.{at}", result.source_call_id, part
