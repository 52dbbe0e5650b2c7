"""A model behind any OpenAI-compatible server (vLLM, SGLang, `transformers serve`): chats go out, answers come back.

A request that got no answer is the server's failure, which ends the trajectory as an environment failure: it says
nothing about the policy.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from models.families.prompt import Message
from models.serving.openai import Endpoint, NoAnswer, OpenAIClient
from models.tiny.speaker import Spoken
from schemas.config.sections import ServerConfig

_NUMBERED = "token_id:"


class ServerSpeaker:
    """Asks a server to go on with chats.

    Args:
        config: the server.
        directory: the checkpoint that plays, which the server must be able to read if its path is the model's name.
        version: the policy's name.
        transport: what carries requests, for tests.
    """

    def __init__(
        self, config: ServerConfig, directory: Path, version: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.config = config
        self.model = config.model.replace("{checkpoint}", str(directory)).replace("{version}", version)
        self._client = OpenAIClient(_endpoint(config), transport)

    def speak(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, limit: int
    ) -> list[Spoken]:
        """One answer of at most `limit` tokens per chat, one after the other; temperature 0 is greedy.

        A failed one says so. Calls may run side by side.

        Raises:
            FlywheelError: the server refuses the key or does not have the model.
        """
        return [self._ask(self._body(chat, seed, temperature, limit)) for chat, seed in zip(chats, seeds, strict=True)]

    def _body(self, chat: Sequence[Message], seed: int, temperature: float, limit: int) -> dict[str, Any]:
        asked = {
            "model": self.model,
            "messages": [_message(message) for message in chat],
            "temperature": temperature,
            "top_p": 1.0,
            "max_tokens": limit,
            "seed": seed % 2**31,
        }
        return {**asked, **({"logprobs": True} if self.config.logprobs else {}), **self.config.extra}

    def _ask(self, body: dict[str, Any]) -> Spoken:
        try:
            return _spoken(self._client.chat(body))
        except NoAnswer as failure:
            return Spoken("", (), (), str(failure))


def require_server(config: ServerConfig, transport: httpx.BaseTransport | None = None) -> None:
    """Raises `FlywheelError` unless the configured server, if there is one, answers and takes the key."""
    if config.url:
        OpenAIClient(_endpoint(config), transport).require()


def _endpoint(config: ServerConfig) -> Endpoint:
    return Endpoint(
        "policy.server", config.url, config.key_variable, config.timeout_s, config.retries, config.concurrency
    )


def _message(message: Message) -> dict[str, Any]:
    """A turn as the protocol has it: text alone as a string, screens as data."""
    parts = message["content"]
    if all(part["type"] == "text" for part in parts):
        return {"role": message["role"], "content": "".join(part["text"] for part in parts)}
    return {"role": message["role"], "content": [_part(part) for part in parts]}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    png = base64.b64encode(part["observation"].png).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}


def _spoken(choice: dict[str, Any]) -> Spoken:
    """What a choice holds; log probabilities that cannot be read make it no answer."""
    try:
        entries = (choice.get("logprobs") or {}).get("content") or []
        logprobs = tuple(min(float(entry["logprob"]), 0.0) for entry in entries)
        tokens = choice.get("token_ids") or _numbered([entry["token"] for entry in entries])
        return Spoken(choice["text"], tuple(tokens) if len(tokens) == len(logprobs) else (), logprobs)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoAnswer(f"log probabilities that cannot be read ({type(error).__name__})") from None


def _numbered(names: Sequence[str]) -> list[int]:
    """Token ids, of a server that names tokens by their numbers."""
    if not all(name.startswith(_NUMBERED) for name in names):
        return []
    return [int(name.removeprefix(_NUMBERED)) for name in names]
