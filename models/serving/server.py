"""Runs a model through any OpenAI-compatible server (vLLM, SGLang, `transformers serve`).

A request without an answer is a failure of the server. The trajectory ends as an environment failure, which does not
count against the policy. A request that the server aborted, or refused while it paused, is sent again.
"""

import base64
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from common.process import home
from common.text import storable
from models.completion import Completion
from models.families.outside import REASONED, sent, tokens_of
from models.families.prompt import Message
from models.families.screen import picture_png
from models.language_model import LanguageModel
from models.serving.openai import NoAnswer, OpenAIClient, Unreachable, Unready, pause_before, require_address
from models.serving.process import require_program
from models.serving.proof import token_ids
from models.serving.replies import decoded
from models.serving.served import ModelServer, endpoint_of, served_by
from models.serving.updater import UPDATERS
from models.weights import Weights
from schemas.config.policy import PolicyConfig, ServerConfig
from schemas.failure import UsageError


class ServerModel(LanguageModel):
    """Sends chats to a server, which continues them.

    Args:
        directory: the acting checkpoint; a server that loads checkpoints must be able to read it.
        config: the config of the server.
        version: the policy's name.
        transport: carries requests, for tests.
    """

    remote = True

    def __init__(
        self, directory: Path, config: PolicyConfig, version: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.config = config.server
        self.max_concurrency = self.config.concurrency
        log = home() / "server.log"
        self._served = ModelServer(self.config, log, transport) if transport else served_by(self.config, log)
        self._weights = Weights(directory, version)
        self._follows = False

    def begin(self) -> None:
        """Makes the server load these weights, which then also answer the previous weights' requests.

        Raises:
            FlywheelError: the server refuses the weights, or did not load them in time.
        """
        self._served.begin(self._weights)
        self._follows = True

    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """Returns one completion of at most `max_tokens` tokens per chat, in sequence; temperature 0 is greedy.

        Each completion names the version that made it. A failed completion holds its error. Calls may run at the same
        time.

        Raises:
            FlywheelError: the server refuses the key or the weights, or does not have the model.
        """
        return [
            self._ask(self._body(chat, seed, max_tokens), temperature) for chat, seed in zip(chats, seeds, strict=True)
        ]

    def _body(self, chat: Sequence[Message], seed: int, max_tokens: int) -> dict[str, Any]:
        """Builds the request without its sampling fields."""
        return {
            "messages": [wire_message(message) for message in sent(chat, tokens_of(self._weights.directory))],
            "max_tokens": max_tokens,
            "seed": seed % 2**31,
            **self._served.fields,
            **({"logprobs": True, "return_token_ids": True} if self.config.logprobs else {}),
            **self.config.extra,
        }

    def _ask(self, body: dict[str, Any], temperature: float) -> Completion:
        """Sends the request until the server answers; gives up if the server is not ready for too long."""
        until, attempt = time.monotonic() + self.config.patience_s, 0
        while True:
            try:
                with self._served.request(self._weights, self._follows) as (held, named):
                    choice = self._served.ask(held, {**named, **body}, temperature)
                    self._served.check(choice)
                    return replace(_completion(choice, held.directory), version=held.version)
            except NoAnswer as reason:
                attempt += 1
                if not self._passes(reason) or time.monotonic() > until:
                    return Completion("", failure=str(reason))
                pause_before(attempt)

    def _passes(self, reason: NoAnswer) -> bool:
        """Checks whether waiting may help, since the server only pauses or restarts."""
        if isinstance(reason, Unreachable) or not self._served.runs:
            self._served.lose()
            return bool(self.config.command)
        return isinstance(reason, Unready)


def require_described(config: ServerConfig) -> None:
    """Raises UsageError for an unknown updater, an updater that must sleep but cannot, or an invalid address."""
    updater = UPDATERS.class_of(config.update)
    if config.while_training == "sleep" and not updater.sleeps:
        raise UsageError(
            f"`policy.server.while_training` is sleep, which no server of `policy.server.update={config.update}` can.",
            "Set it to run, or to stop where `policy.server.command` starts the server.",
        )
    if config.url:
        require_address(endpoint_of(config))


def require_server(config: ServerConfig, transport: httpx.BaseTransport | None = None) -> str:
    """Checks the configured server before the first request and describes it.

    Raises:
        UsageError: as `require_described`.
        FlywheelError: the server does not answer, or does not take the key; the command's program does not exist.
    """
    if not config.named:
        return "none: the policy acts in this process"
    require_described(config)
    if config.command:
        return f"{require_program(config)} is there, to be started when the policy acts"
    OpenAIClient(endpoint_of(config), transport).require()
    return f"{config.url} answers"


def wire_message(message: Message) -> dict[str, Any]:
    """Converts a turn to the protocol's: a turn of only text as a string, screens as data, with its thinking if any."""
    parts = message["content"]
    kept = {key: message[key] for key in ("role", REASONED) if key in message}
    if all(part["type"] == "text" for part in parts):
        return {**kept, "content": "".join(part["text"] for part in parts)}
    return {**kept, "content": [_part(part) for part in parts]}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    png = base64.b64encode(picture_png(part["observation"].png, part.get("limits"))).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}


def _completion(choice: dict[str, Any], directory: Path) -> Completion:
    """Reads a choice; if the server split the reply, its text is decoded from its tokens, if known.

    A choice with unreadable log probabilities counts as no answer.
    """
    try:
        entries = (choice.get("logprobs") or {}).get("content") or []
        logprobs = tuple(min(float(entry["logprob"]), 0.0) for entry in entries)
        tokens = token_ids(choice)
        ids = tuple(tokens) if len(tokens) == len(logprobs) else ()
        read = tuple(choice["prompt_token_ids"])
        text = storable((decoded(directory, tokens) if choice["reply"].split else None) or choice["text"])
        return Completion(text, ids, logprobs, prompt_ids=read, cut=choice.get("finish_reason") == "length")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoAnswer(f"log probabilities that cannot be read ({type(error).__name__})") from None
