"""Calls OpenAI-compatible servers (vLLM, SGLang, `transformers serve`) for the policy and for judges.

The client repeats requests after transient failures (no connection, a timeout, 429, a server error), with growing
pauses. The last failure is raised as `NoAnswer`, the failure of one request. A server that pauses or loads new weights
answers 503 or aborts requests; callers that can wait get `Unready`. A refused key or a missing model would fail every
request in the same way, so these errors name the config key. The API key is read from an environment variable that the
config names, and appears in no message.

The tokens of every request are counted by config section, for stages and budgets, even if its answer is unusable. A
judge or proposer that calls its model in another way calls `charge` itself.
"""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import httpx
from pydantic import Field

from common.text import broken, restored, storable
from models.serving.replies import ServedReply, content_of, reply_of, streamed
from schemas.config.section import Positive, Section, Whole
from schemas.failure import FlywheelError, UsageError

_lock = Lock()
_charged = Counter[str]()


def charge(who: str, tokens: int) -> None:
    """Adds tokens that a server read and wrote to a section's count.

    Args:
        who: the config section that names the model: `judge`, `think`, `reflect`, `train` or `policy`.
        tokens: tokens of one request.
    """
    with _lock:
        _charged[who] += tokens


def charged() -> Counter[str]:
    """Returns all counts so far, by section."""
    with _lock:
        return _charged.copy()


def charged_since(before: Counter[str]) -> Counter[str]:
    """Returns the difference to an earlier `charged`, without sections whose count did not change."""
    return charged() - before


MAY_PASS = (408, 409, 425, 429, 500, 502, 503, 504)
"""HTTP statuses of transient failures."""
PAUSES = (0.5, 8.0)
"""First and longest pause before a repetition, in seconds; the pause doubles each time."""
FAILED = 500
"""Status of an internal error, such as a parser's failure on the model's reply."""
UNREADY = 503
"""Status of a server that pauses, sleeps, loads new weights or is overloaded."""
UNMADE = 501
"""Status of a server that has no such endpoint."""
REFUSED = (401, 403)
"""Statuses of a rejected key."""
MALFORMED = (400, 422)
"""Statuses of a request with rejected fields."""

WAIT_S = 10.0
"""Maximum seconds that `OpenAIClient.require` waits for an answer."""
VERSION = re.compile(r"/v\d+\w*(/|$)")
"""The version in a server's address."""


class NoAnswer(Exception):
    """Raised if a request has no usable answer after all retries; the message has the reason."""


class Unready(NoAnswer):
    """Raised if the server is up but not ready, or aborted the request; a later request may succeed."""


class Unreachable(NoAnswer):
    """Raised if nothing answers at the server's address."""


class Failed(NoAnswer):
    """Raised if the server failed at a request that was not repeated."""


class Rejected(NoAnswer):
    """Raised if the server rejects a request's fields; a repetition would fail, too.

    Args:
        about: the message.
        answer: the whole body of the server's answer.
    """

    def __init__(self, about: str, answer: str) -> None:
        super().__init__(about)
        self.answer = answer


class Unknown(FlywheelError):
    """Raised if the server does not have the requested model."""


def pause_before(attempt: int) -> None:
    """Sleeps before the given repetition of a request, the first being 1."""
    time.sleep(min(PAUSES[0] * 2 ** (attempt - 1), PAUSES[1]))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a server, with timeouts and limits.

    Args:
        section: its config section, such as `policy.server`, for messages.
        url: address up to the version, such as `http://localhost:8000/v1`.
        key_variable: the environment variable that holds the key; no key is sent if it is not set.
        timeout_s: seconds without a byte after which a request has failed.
        retries: maximum number of repetitions of a request after a transient failure.
        concurrency: maximum number of open connections.
        waits: whether the caller waits for a server that is not ready, so that a 503 raises `Unready` at once.
    """

    section: str
    url: str
    key_variable: str
    timeout_s: float
    retries: int
    concurrency: int = 16
    waits: bool = False


class EndpointOptions(Section):
    """Options of a part that asks a model on an OpenAI-compatible server."""

    url: str = Field(min_length=1)
    """The server's base url, for example `http://127.0.0.1:8000/v1`."""
    model: str = Field(min_length=1)
    """Name of the model on the server."""
    key_variable: str
    """Environment variable with the API key; no key is sent if the variable is not set."""
    timeout_s: Positive = 60.0
    """Seconds without a received byte after which a request fails."""


class RepeatedEndpointOptions(EndpointOptions):
    """Options of a part whose requests are repeated a limited number of times."""

    retries: Whole = 2
    """Number of retries of a request that may still succeed."""


class OpenAIClient:
    """Sends requests to an endpoint; safe to share between threads.

    Args:
        endpoint: the server.
        transport: the HTTP transport, for tests.

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
        """Returns the first choice of a chat completion for messages with untrusted text.

        Every text with the form of a special token of any vocabulary is split in the messages, and restored in the
        answer's text (`common.text`). The answer's thinking is left out. Fields and errors are those of `complete`.
        """
        asked = {**body, "messages": [_broken(one) for one in body.get("messages") or ()]}
        choice = self._completed(asked, (), content_of)
        return {**choice, "text": restored(choice["text"])}

    def complete(self, body: Mapping[str, Any], final: Sequence[int] = ()) -> dict[str, Any]:
        """Returns the first choice of a chat completion, with the request sent unchanged.

        Args:
            body: the request.
            final: transient statuses that are not retried.

        Returns:
            The server's choice with additional fields. `text` is the whole reply, made storable, and `reply` the
            `ServedReply`. `tokens` counts all tokens and `generated` the answer's tokens, 0 if the server gives no
            count. `metadata` is SGLang's for the whole answer. `prompt_token_ids` are the prompt's tokens, if the
            server gives them (vLLM next to the choices, SGLang in the choice).

        Raises:
            NoAnswer: the server failed, or its answer is no completion.
            Failed: the server answered with a status of `final`.
            Rejected: the server rejects the fields.
            Unready: the server aborted the request, or answered 503 and the endpoint `waits`.
            Unreachable: nothing answers at the address.
            FlywheelError: the server refuses the key or does not have the model.
        """
        return self._completed(body, final, reply_of)

    def _completed(
        self, body: Mapping[str, Any], final: Sequence[int], read: Callable[[Mapping[str, Any]], ServedReply]
    ) -> dict[str, Any]:
        """Returns the first choice as `complete` does, and reads its message with `read`."""
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
            raise Unready(f"{self.endpoint.url}: the server aborted the request (finish_reason abort)")
        fields = {"text": text, "reply": reply, "tokens": tokens, "generated": generated}
        return {**choice, **fields, "metadata": metadata, "prompt_token_ids": prompt}

    def read(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns SGLang's answer of `/generate`, outside of the protocol, with the request sent unchanged.

        A request that the server aborts, for example to load weights, is repeated.

        Raises:
            NoAnswer, Rejected, Unready, Unreachable, FlywheelError: as `complete`.
        """
        root = self.endpoint.url.rstrip("/").removesuffix("/v1")
        for attempt in range(self.endpoint.retries + 1):
            if attempt:
                pause_before(attempt)
            answer, found = self._sent(json.dumps(body).encode(), (), f"{root}/generate")
            if not isinstance(found, dict) or not isinstance(found.get("meta_info"), dict):
                raise NoAnswer(self._about(answer, "no `meta_info`"))
            self._charged(_number(found["meta_info"].get("prompt_tokens")))
            ended = found["meta_info"].get("finish_reason")
            if not (isinstance(ended, dict) and ended.get("type") == "abort"):
                return found
        raise Unready(f"{self.endpoint.url}: the server aborted the request (finish_reason abort)")

    def models(self) -> list[str]:
        """Returns the names of the server's models, after `require`; empty if it has no list."""
        found = _held(self._client.get("models", timeout=min(WAIT_S, self.endpoint.timeout_s)))
        return [str(one["id"]) for one in found["data"]] if _lists_models(found) else []

    def require(self) -> None:
        """Raises `FlywheelError` unless the server answers, takes the key, and lists models if it has a list."""
        section, url = self.endpoint.section, self.endpoint.url
        waited = min(WAIT_S, self.endpoint.timeout_s)
        try:
            answer = self._client.get("models", timeout=waited)
        except (httpx.ReadTimeout, httpx.WriteTimeout):
            problem = f"`{section}.url`: {url} accepts connections, and gave no answer within {waited:g} s."
            hint = "The server may still load its model or be blocked: see its log, and try again once it has started."
            raise FlywheelError(problem, hint) from None
        except httpx.ConnectTimeout:
            problem = f"`{section}.url`: {url} accepted no connection within {waited:g} s."
            raise FlywheelError(problem, "Check the address, and that no firewall is in between.") from None
        except httpx.HTTPError as error:
            problem = f"`{section}.url`: {url} does not answer: {self._clean(str(error)).rstrip('.')}."
            raise FlywheelError(problem, "Start the server.") from None
        if answer.status_code in REFUSED:
            raise self._refused(answer)
        if answer.is_server_error and answer.status_code not in (UNREADY, UNMADE):
            problem = f"`{section}.url`: {self._about(answer, str(answer.status_code))}."
            raise FlywheelError(problem, "See the server's log, and restart the server.")
        found, missing = _held(answer), answer.status_code == 404 and not VERSION.search(url)
        if missing or (answer.is_success and not _lists_models(found)):
            flaw = "an answer that is not JSON" if found is None else "no list of models"
            problem = f"`{section}.url`: {self._about(answer, flaw)}."
            hint = "Write the address of an OpenAI-compatible server, such as http://HOST:8000/v1."
            if not VERSION.search(url):
                hint = f"Write the address up to the version, such as {url.rstrip('/')}/v1."
            raise FlywheelError(problem, hint)

    def _metered(self, completion: dict[str, Any]) -> int:
        """Charges and returns the tokens that the server counted for a completion."""
        return self._charged(_count(completion, "total_tokens"))

    def _charged(self, tokens: int) -> int:
        charge(self.endpoint.section.partition(".")[0], tokens)
        return tokens

    def _sent(self, body: bytes, final: Sequence[int], path: str = "chat/completions") -> tuple[httpx.Response, Any]:
        """Posts a request, and returns the answer and its completion (None if the answer is no JSON)."""
        failure = NoAnswer("")
        for attempt in range(self.endpoint.retries + 1):
            if attempt:
                pause_before(attempt)
            try:
                answer = self._client.post(path, content=body, headers={"Content-Type": "application/json"})
            except httpx.HTTPError as error:
                kind = Unreachable if isinstance(error, httpx.ConnectError) else NoAnswer
                about = f"{type(error).__name__}: {error}"
                if isinstance(error, httpx.ReadTimeout):
                    about = f"no answer within {self.endpoint.timeout_s:g} s"
                failure = kind(self._clean(f"{self.endpoint.url}: {about}"))
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
        if self._key:
            hint = (
                f"The server rejected the key in {variable}: set another key, or name another variable in "
                f"{section}.key_variable."
            )
        kind = FlywheelError
        if answer.status_code == 404:
            kind, hint = Unknown, f"Serve that model under this name, or set {section}.model or {section}.url."
        return kind(f"`{section}.url`: {self._about(answer, str(answer.status_code))}.", hint)

    def _about(self, answer: httpx.Response, what: str) -> str:
        return f"{self.endpoint.url}: {what} in {self._clean(answer.text)[:200]!r}"

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _held(answer: httpx.Response) -> Any:
    """Returns the completion of an answer, streamed or not; None if it has none."""
    try:
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            return streamed(answer.text)
        return answer.json()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _lists_models(answer: Any) -> bool:
    """Checks whether an answer has the protocol's form of a list of models."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    return isinstance(listed, list) and all(isinstance(one, dict) and "id" in one for one in listed)


def _count(completion: Mapping[str, Any], name: str) -> int:
    """Returns the server's count of tokens under a name; 0 if it gives none."""
    return _number((completion.get("usage") or {}).get(name))


def _number(used: Any) -> int:
    return used if isinstance(used, int) and used > 0 else 0


def _broken(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message in which every text that could be read as a special token is split."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": broken(content)}
    parts = [{**part, "text": broken(part["text"])} if part.get("type") == "text" else part for part in content]
    return {**message, "content": parts}


def headers_of(endpoint: Endpoint) -> dict[str, str]:
    """Returns the headers of every request to an endpoint; raises UsageError for a key that cannot be sent."""
    key = _key(endpoint)
    return {"Authorization": f"Bearer {key}"} if key else {}


def require_address(endpoint: Endpoint) -> None:
    """Raises UsageError if the endpoint's url is not a web address."""
    if endpoint.url.startswith(("http://", "https://")):
        return
    host = endpoint.url.rpartition("://")[2]
    written = f"http://{host}" if "/" in host else f"http://{host}/v1"
    raise UsageError(f"`{endpoint.section}.url`: {endpoint.url} is not a web address.", f"Write {written}")


def _key(endpoint: Endpoint) -> str:
    key = os.environ.get(endpoint.key_variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(
            f"`{endpoint.section}.key_variable`: the value of {endpoint.key_variable} cannot be sent in a header.",
            "Put only the key into it.",
        )
    return key
