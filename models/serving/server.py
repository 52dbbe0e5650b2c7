"""A model behind any OpenAI-compatible server (vLLM, SGLang, `transformers serve`): chats go out, answers come back.

A request that got no answer is the server's failure, which ends the trajectory as an environment failure: it says
nothing about the policy.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from models.completion import Completion
from models.families.prompt import Message
from models.families.screen import picture_png
from models.language_model import LanguageModel
from models.serving.openai import Endpoint, NoAnswer, OpenAIClient
from schemas.config.sections import PolicyConfig, ServerConfig

_NUMBERED = "token_id:"


class ServerModel(LanguageModel):
    """Asks a server to go on with chats.

    Args:
        directory: the checkpoint that acts, which the server must be able to read if its path is the model's name.
        config: the server.
        version: the policy's name.
        transport: what carries requests, for tests.
    """

    def __init__(
        self, directory: Path, config: PolicyConfig, version: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.config = config.server
        self.max_concurrency = self.config.concurrency
        self.model = self.config.model.replace("{checkpoint}", str(directory)).replace("{version}", version)
        self._client = OpenAIClient(_endpoint(self.config), transport)

    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """One completion of at most `max_tokens` tokens per chat, one after the other; temperature 0 is greedy.

        A failed one says so. Calls may run at the same time.

        Raises:
            FlywheelError: the server refuses the key or does not have the model.
        """
        return [
            self._ask(self._body(chat, seed, temperature, max_tokens)) for chat, seed in zip(chats, seeds, strict=True)
        ]

    def _body(self, chat: Sequence[Message], seed: int, temperature: float, max_tokens: int) -> dict[str, Any]:
        asked = {
            "model": self.model,
            "messages": [wire_message(message) for message in chat],
            "temperature": temperature,
            "top_p": 1.0,
            "max_tokens": max_tokens,
            "seed": seed % 2**31,
        }
        return {**asked, **({"logprobs": True} if self.config.logprobs else {}), **self.config.extra}

    def _ask(self, body: dict[str, Any]) -> Completion:
        try:
            return _completion(self._client.chat(body))
        except NoAnswer as failure:
            return Completion("", failure=str(failure))


def require_server(config: ServerConfig, transport: httpx.BaseTransport | None = None) -> None:
    """Raises `FlywheelError` unless the configured server, if there is one, answers and takes the key."""
    if config.url:
        OpenAIClient(_endpoint(config), transport).require()


def _endpoint(config: ServerConfig) -> Endpoint:
    return Endpoint(
        "policy.server", config.url, config.key_variable, config.timeout_s, config.retries, config.concurrency
    )


def wire_message(message: Message) -> dict[str, Any]:
    """A turn as the protocol has it: text alone as a string, screens as data."""
    parts = message["content"]
    if all(part["type"] == "text" for part in parts):
        return {"role": message["role"], "content": "".join(part["text"] for part in parts)}
    return {"role": message["role"], "content": [_part(part) for part in parts]}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    png = base64.b64encode(picture_png(part["observation"].png, part.get("limits"))).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}


def _completion(choice: dict[str, Any]) -> Completion:
    """What a choice holds; one that the server gave up, or log probabilities that cannot be read, are no answer."""
    ended = choice.get("finish_reason")
    if ended == "abort":
        raise NoAnswer("the server gave the request up (finish_reason abort)")
    try:
        entries = (choice.get("logprobs") or {}).get("content") or []
        logprobs = tuple(min(float(entry["logprob"]), 0.0) for entry in entries)
        tokens = choice.get("token_ids") or _numbered([entry["token"] for entry in entries])
        ids = tuple(tokens) if len(tokens) == len(logprobs) else ()
        return Completion(choice["text"], ids, logprobs, cut=ended == "length")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoAnswer(f"log probabilities that cannot be read ({type(error).__name__})") from None


def _numbered(names: Sequence[str]) -> list[int]:
    """Token ids, of a server that names tokens by their numbers."""
    if not all(name.startswith(_NUMBERED) for name in names):
        return []
    return [int(name.removeprefix(_NUMBERED)) for name in names]
