"""The one client of OpenAI-compatible servers (vLLM, SGLang, `transformers serve`), for the policy and for judges.

What may pass (no connection, a timeout, 429, a server's error) is tried again with growing pauses; what is left is
`NoAnswer`, the failure of one request. A server that is pausing or taking up new weights says 503 or gives requests up,
which whoever can wait for it hears as `Unready`. A refused key or a model that the server does not have would fail
every request alike, so those are errors that name the config key. The key is read from an environment variable that
the config names and appears in no message.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from models.serving.meter import charge
from models.serving.replies import ServedReply, content_of, reply_of, streamed
from schemas.failure import FlywheelError, UsageError
from schemas.text import broken, restored, storable

MAY_PASS = (408, 409, 425, 429, 500, 502, 503, 504)
"""Statuses that may pass."""
PAUSES = (0.5, 8.0)
"""Seconds before the first repetition, doubled each time, and the longest."""
FAILED = 500
"""Status of a server that failed, such as at the words that its model wrote."""
UNREADY = 503
"""Status of a server that pauses, sleeps or takes up new weights; and of one that has too much to do."""
REFUSED = (401, 403)
"""Statuses of a key that is not taken."""
MALFORMED = (400, 422)
"""Statuses of a request whose fields are not taken."""


class NoAnswer(Exception):
    """A request that got no usable answer, after all its repetitions; says why."""


class Unready(NoAnswer):
    """The server is there and does not answer now, or gave the request up: it may be asked again later."""


class Unreachable(NoAnswer):
    """Nothing answers at its address."""


class Failed(NoAnswer):
    """The server failed at this request, and was not asked again."""


class Rejected(NoAnswer):
    """The server does not take this request's fields, and would not take them again.

    Args:
        about: what is said of it.
        answer: all that the server answered.
    """

    def __init__(self, about: str, answer: str) -> None:
        super().__init__(about)
        self.answer = answer


class Unknown(FlywheelError):
    """The server does not have the model that it is asked for."""


def pause_before(attempt: int) -> None:
    """Sleeps before the given repetition of a request, the first being 1."""
    time.sleep(min(PAUSES[0] * 2 ** (attempt - 1), PAUSES[1]))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is and how long it is waited for.

    Args:
        section: the config section it is from, such as `policy.server`, for messages.
        url: up to the version, such as `http://localhost:8000/v1`.
        key_variable: the environment variable that holds the key; no key is sent if it is not set.
        timeout_s: seconds without a byte after which a request has failed.
        retries: how often a request that may still succeed is sent again.
        concurrency: connections at the same time.
        waits: whether who asks waits for a server that is not ready, and wants to know of it at once.
    """

    section: str
    url: str
    key_variable: str
    timeout_s: float
    retries: int
    concurrency: int = 16
    waits: bool = False


class OpenAIClient:
    """Sends requests to an endpoint; safe to share between threads.

    Args:
        endpoint: the server.
        transport: what carries requests, for tests.

    Raises:
        UsageError: the url is no web address; the key cannot be sent in a header.
    """

    def __init__(self, endpoint: Endpoint, transport: httpx.BaseTransport | None = None) -> None:
        require_address(endpoint)
        self.endpoint = endpoint
        self._key = _key(endpoint)
        self._client = httpx.Client(
            base_url=endpoint.url,
            headers=headers_of(endpoint),
            timeout=endpoint.timeout_s,
            limits=httpx.Limits(max_connections=endpoint.concurrency),
            transport=transport,
        )

    def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The first choice of a chat completion whose messages hold texts from outside; what was thought is left out.

        Everything in the messages that may be a token is broken, whatever the model's vocabulary, and the answer's text
        restored (`schemas.text`). Fields and errors as of `complete`.
        """
        asked = {**body, "messages": [_broken(one) for one in body.get("messages") or ()]}
        choice = self._completed(asked, (), content_of)
        return {**choice, "text": restored(choice["text"])}

    def complete(self, body: Mapping[str, Any], final: Sequence[int] = ()) -> dict[str, Any]:
        """The first choice of a chat completion as the server wrote it, asked for in these very words.

        Under `text` is the whole reply, made storable (`models.serving.replies`), and under `reply` how it was split;
        under `tokens` what the server counted, 0 if it did not, and under `generated` those of the answer; under
        `metadata` what SGLang says of the whole answer; under `prompt_token_ids` the tokens that it read, where it
        names them (vLLM beside the choice, SGLang in it).

        Args:
            body: the request.
            final: statuses that are not tried again, though they may pass.

        Raises:
            NoAnswer: the server failed, or what it sent is no completion.
            Failed: it answered with a status of `final`.
            Rejected: it does not take the fields.
            Unready: it gave the request up; or, where the endpoint `waits`, it answers nobody now.
            Unreachable: nothing answers there.
            FlywheelError: it refuses the key or does not have the model.
        """
        return self._completed(body, final, reply_of)

    def _completed(
        self, body: Mapping[str, Any], final: Sequence[int], read: Callable[[Mapping[str, Any]], ServedReply]
    ) -> dict[str, Any]:
        """The first choice, as `complete` says, of whose message the reply is read so."""
        answer, completion = self._sent(json.dumps(body).encode(), final)
        try:
            tokens = self._metered(completion)
            choice = completion["choices"][0]
            reply = read(choice["message"])
            text = storable(reply.text)
            ended, metadata = choice.get("finish_reason"), completion.get("metadata")
            prompt = completion.get("prompt_token_ids") or choice.get("prompt_token_ids") or []
            generated = _count(completion, "completion_tokens")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise NoAnswer(self._about(answer, f"no answer ({type(error).__name__})")) from None
        if ended == "abort":
            raise Unready(f"{self.endpoint.url}: the server gave the request up (finish_reason abort)")
        told = {"text": text, "reply": reply, "tokens": tokens, "generated": generated}
        return {**choice, **told, "metadata": metadata, "prompt_token_ids": prompt}

    def require(self) -> None:
        """Raises `FlywheelError` unless the server answers and takes the key."""
        section, url = self.endpoint.section, self.endpoint.url
        try:
            answer = self._client.get("models", timeout=min(10.0, self.endpoint.timeout_s))
        except httpx.HTTPError as error:
            problem = f"`{section}.url`: {url} does not answer: {self._clean(str(error)).rstrip('.')}."
            raise FlywheelError(problem, "Start the server.") from None
        if answer.status_code in REFUSED:
            raise self._refused(answer)

    def _metered(self, completion: dict[str, Any]) -> int:
        """The tokens that the server counted for a completion."""
        tokens = _count(completion, "total_tokens")
        charge(self.endpoint.section.partition(".")[0], tokens)
        return tokens

    def _sent(self, body: bytes, final: Sequence[int]) -> tuple[httpx.Response, Any]:
        """The answer, and what it holds; None where that is no JSON."""
        failure = NoAnswer("")
        for attempt in range(self.endpoint.retries + 1):
            if attempt:
                pause_before(attempt)
            try:
                answer = self._client.post(
                    "chat/completions", content=body, headers={"Content-Type": "application/json"}
                )
            except httpx.HTTPError as error:
                kind = Unreachable if isinstance(error, httpx.ConnectError) else NoAnswer
                failure = kind(self._clean(f"{self.endpoint.url}: {type(error).__name__}: {error}"))
                continue
            if answer.is_success:
                completion = _held(answer)
                if not (isinstance(completion, dict) and (ended := completion.get("failure"))):
                    return answer, completion
                failure = NoAnswer(self._about(answer, f"a stream that failed ({str(ended)[:80]})"))
                continue
            if answer.status_code in (*REFUSED, 404):
                raise self._refused(answer)
            problem = self._about(answer, str(answer.status_code))
            if answer.status_code in final:
                raise Failed(problem)
            if answer.status_code == UNREADY and self.endpoint.waits:
                raise Unready(problem)
            malformed = answer.status_code in MALFORMED
            failure = Rejected(problem, self._clean(answer.text)) if malformed else NoAnswer(problem)
            if answer.status_code not in MAY_PASS:
                break
        raise failure

    def _refused(self, answer: httpx.Response) -> FlywheelError:
        section, variable = self.endpoint.section, self.endpoint.key_variable
        hint = f"Put the key into the environment variable {variable}, which {section}.key_variable names."
        kind = FlywheelError
        if answer.status_code == 404:
            kind, hint = Unknown, f"Serve that model under this name, or set {section}.model or {section}.url."
        return kind(f"`{section}.url`: {self._about(answer, str(answer.status_code))}.", hint)

    def _about(self, answer: httpx.Response, what: str) -> str:
        return f"{self.endpoint.url}: {what} in {self._clean(answer.text)[:200]!r}"

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _held(answer: httpx.Response) -> Any:
    """The completion that an answer holds, streamed or not; None where there is none."""
    try:
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            return streamed(answer.text)
        return answer.json()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _count(completion: Mapping[str, Any], name: str) -> int:
    """A number of tokens as the server counted it; 0 where it did not."""
    used = (completion.get("usage") or {}).get(name)
    return used if isinstance(used, int) and used > 0 else 0


def _broken(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message in which nothing is read as a token."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": broken(content)}
    parts = [{**part, "text": broken(part["text"])} if part.get("type") == "text" else part for part in content]
    return {**message, "content": parts}


def headers_of(endpoint: Endpoint) -> dict[str, str]:
    """What every request to an endpoint carries; raises UsageError for a key that cannot be sent."""
    key = _key(endpoint)
    return {"Authorization": f"Bearer {key}"} if key else {}


def require_address(endpoint: Endpoint) -> None:
    """Raises UsageError if the endpoint's url is no web address."""
    if endpoint.url.startswith(("http://", "https://")):
        return
    host = endpoint.url.rpartition("://")[2]
    written = f"http://{host}" if "/" in host else f"http://{host}/v1"
    raise UsageError(f"`{endpoint.section}.url`: {endpoint.url} is no web address.", f"Write {written}")


def _key(endpoint: Endpoint) -> str:
    key = os.environ.get(endpoint.key_variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(
            f"`{endpoint.section}.key_variable`: what {endpoint.key_variable} holds cannot be sent in a header.",
            "Put the key alone into it.",
        )
    return key
