"""Proposes corrections with a model behind any OpenAI-compatible server; the prompt has the screen and its failed
actions."""

import base64
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from common.picture import stored_plain
from models.completion import Completion
from models.families.dialects import format_action, format_reply, parse_reply
from models.families.prompt import SAMPLES, system_text
from models.policy import Context
from models.proposers.proposer import Proposer, ProposerResources
from models.serving.openai import Endpoint, NoAnswer, OpenAIClient
from schemas.config.section import Count, Positive, Section, Whole

ASKED = "Those were tried on this screen, and led nowhere. Do something else that the instruction asks for."


class ProposerEndpointOptions(Section):
    """`reflect.options.endpoint`."""

    url: str = Field(min_length=1)
    """The server's base url, for example `http://127.0.0.1:8000/v1`."""
    model: str = Field(min_length=1)
    """Name of the model on the server."""
    key_variable: str = "FLYWHEEL_PROPOSER_KEY"
    """Environment variable with the API key; no key is sent if the variable is not set."""
    timeout_s: Positive = 60.0
    """Seconds without a received byte after which a request fails."""
    retries: Whole = 2
    """Number of retries of a request that may still succeed."""
    concurrency: Count = 8
    """Maximum concurrent requests."""
    temperature: Positive = 0.7
    """Sampling temperature of the answers."""
    max_tokens: Count = 256
    """Maximum tokens of an answer."""


class EndpointProposer(Proposer[ProposerEndpointOptions]):
    """Asks a served model for a thought and an action, coordinates in thousandths of the screen."""

    section = ProposerEndpointOptions
    dialect = "box_v1"

    def __init__(self, options: ProposerEndpointOptions, resources: ProposerResources) -> None:
        super().__init__(options, resources)
        self.version, self.max_concurrency = options.model, options.concurrency
        self._client = _client(options)

    @classmethod
    def require(cls, options: ProposerEndpointOptions) -> None:
        """Checks that the server answers and takes the key."""
        _client(options).require()

    def propose(self, contexts: Sequence[Context], temperature: float, draw: int) -> list[Completion]:
        """Requests the served model's completions; a failed completion names its error."""
        return [self._ask(context, draw) for context in contexts]

    def _ask(self, context: Context, draw: int) -> Completion:
        try:
            return parse_reply(self._client.chat(self._body(context, draw))["text"])
        except NoAnswer as failure:
            return Completion("", failure=str(failure))

    def _body(self, context: Context, draw: int) -> dict[str, Any]:
        png = base64.b64encode(stored_plain(context.observation.png)).decode()
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}
        content = [{"type": "text", "text": text_of(context)}, picture]
        rules = system_text([format_action(action) for action in SAMPLES])
        return {
            "model": self.options.model,
            "messages": [{"role": "system", "content": rules}, {"role": "user", "content": content}],
            "temperature": self.options.temperature,
            "max_tokens": self.options.max_tokens,
            "seed": (context.seed + draw) % 2**31,
        }


def text_of(context: Context) -> str:
    """Writes the prompt: the instruction, the past actions, and the actions that failed on this screen."""
    parts = [f"Instruction: {context.instruction}"]
    if context.turns:
        done = "\n".join(format_reply(turn.thought, turn.action_text) for turn in context.turns)
        parts.append(f"Done so far:\n{done}")
    if context.avoid:
        parts.append("\n".join([ASKED, *(format_action(action) for action in context.avoid)]))
    return "\n\n".join(parts)


def _client(options: ProposerEndpointOptions) -> OpenAIClient:
    where = (options.url, options.key_variable, options.timeout_s, options.retries, options.concurrency)
    return OpenAIClient(Endpoint("reflect.options.endpoint", *where))
