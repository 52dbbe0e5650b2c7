"""A model behind any OpenAI-compatible server (vLLM, SGLang, `transformers serve`): chats go out, answers come back.

What may pass (no connection, a timeout, 429, a server's error) is tried again with growing pauses; what is left is the
server's failure, which ends the play as an environment failure: it says nothing about the policy. A refused key or a
model that the server does not have would fail every play alike, so those are errors.
"""

import base64
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from models.families.prompt import Message
from models.tiny.speaker import Spoken
from schemas.config.sections import ServerConfig
from schemas.failure import FlywheelError

AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)
"""Statuses that may pass."""
PAUSES = (0.5, 8.0)
"""Seconds before the first repetition, doubled each time, and the longest."""
_REFUSED = {
    401: "Put the key into the environment variable that policy.server.key_variable names.",
    403: "Put the key into the environment variable that policy.server.key_variable names.",
    404: "Serve that model under this name, or set policy.server.model or policy.server.url.",
}
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
        self._client = _client(config, transport)

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
        said = ""
        for attempt in range(self.config.retries + 1):
            if attempt:
                time.sleep(min(PAUSES[0] * 2 ** (attempt - 1), PAUSES[1]))
            try:
                answer = self._client.post("chat/completions", json=body)
            except httpx.TransportError as error:
                said = f"{type(error).__name__}: {error}"
                continue
            if answer.status_code in _REFUSED:
                raise FlywheelError(
                    f"{self.config.url}, model {self.model}: {answer.status_code} {answer.text[:200]}.",
                    _REFUSED[answer.status_code],
                )
            if answer.is_success:
                return _spoken(answer)
            said = f"{answer.status_code} {answer.text[:200]}"
            if answer.status_code not in AGAIN:
                break
        return Spoken("", (), (), f"{self.config.url}: {said}")


def require_server(config: ServerConfig, transport: httpx.BaseTransport | None = None) -> None:
    """Raises `FlywheelError` unless the configured server, if there is one, answers and takes the key."""
    if not config.url:
        return
    try:
        with _client(config, transport, timeout=10.0) as client:
            answer = client.get("models")
    except httpx.HTTPError as error:
        raise FlywheelError(
            f"`policy.server.url`: {config.url} does not answer: {error}.", "Start the server."
        ) from error
    if answer.status_code in (401, 403):
        raise FlywheelError(f"`policy.server.url`: {config.url}: {answer.status_code}.", _REFUSED[answer.status_code])


def _client(config: ServerConfig, transport: httpx.BaseTransport | None, timeout: float | None = None) -> httpx.Client:
    key = os.environ.get(config.key_variable, "")
    return httpx.Client(
        base_url=config.url,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=timeout or config.timeout_s,
        limits=httpx.Limits(max_connections=config.concurrency),
        transport=transport,
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


def _spoken(answer: httpx.Response) -> Spoken:
    """The answer in a response; one that is none is the server's failure."""
    try:
        choice = answer.json()["choices"][0]
        text = choice["message"]["content"] or ""
        entries = (choice.get("logprobs") or {}).get("content") or []
        logprobs = tuple(min(float(entry["logprob"]), 0.0) for entry in entries)
        tokens = choice.get("token_ids") or _numbered([entry["token"] for entry in entries])
        return Spoken(text, tuple(tokens) if len(tokens) == len(logprobs) else (), logprobs)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        return Spoken("", (), (), f"{answer.url}: no answer in {answer.text[:200]!r} ({type(error).__name__})")


def _numbered(names: Sequence[str]) -> list[int]:
    """Token ids, of a server that names tokens by their numbers."""
    if not all(name.startswith(_NUMBERED) for name in names):
        return []
    return [int(name.removeprefix(_NUMBERED)) for name in names]
