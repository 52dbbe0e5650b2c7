"""The interface between a server and new weights: the server's own endpoints for loading them.

Rollouts continue with requests while weights change (`models.serving.served` closes the gate for that moment). An
updater only knows one kind of server: the order of calls, and the place in an answer that names its weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import httpx

from models.serving.openai import REFUSED, UNREADY, Endpoint, NoAnswer, Unreachable, Unready, headers_of
from schemas.failure import FlywheelError
from schemas.registry import Registry

LOADING, ASLEEP = "loading", "asleep"
"""Names of weights while they change, and while the server sleeps without them.

A process killed meanwhile leaves a server whose weights are not trusted, or that has to be woken.
"""


class Missing(NoAnswer):
    """Raised if the server has no such endpoint."""


class UpdateUnsupported(FlywheelError):
    """Raised if the server was not started for this, or does not take the key; a restart would not fix that."""


class Control:
    """Client of a server's own endpoints, those outside of OpenAI's protocol.

    Args:
        endpoint: the server.
        timeout_s: how long one call may take; loading weights is such a call.
        transport: carries requests, for tests.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float, transport: httpx.BaseTransport | None = None) -> None:
        self.root = endpoint.url.rstrip("/").removesuffix("/v1")
        self._client = httpx.Client(headers=headers_of(endpoint), timeout=timeout_s, transport=transport)

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """Returns the answer of an endpoint, as JSON; None where it answers nothing.

        Raises:
            Missing: there is no such endpoint.
            Unreachable, Unready: it cannot be asked now.
            Unable: it does not take the key.
            FlywheelError: it refuses; quotes it.
        """
        return self._answer("POST", path, json=dict(body or {}), params=query)

    def get(self, path: str) -> Any:
        """Requests as `post`, without a body."""
        return self._answer("GET", path)

    def models(self) -> list[str]:
        """Lists the models' names; not by the connections that chats wait for."""
        try:
            return [str(one["id"]) for one in self.get("/v1/models")["data"]]
        except (KeyError, TypeError) as error:
            raise NoAnswer(f"{self.root}/v1/models: {type(error).__name__}: {error}") from None

    def _answer(self, verb: str, path: str, **given: Any) -> Any:
        try:
            answer = self._client.request(verb, f"{self.root}{path}", **given)
        except httpx.ConnectError as error:
            raise Unreachable(f"{self.root}{path}: {error}") from None
        except httpx.HTTPError as error:
            raise NoAnswer(f"{self.root}{path}: {type(error).__name__}: {error}") from None
        about = f"{self.root}{path}: {answer.status_code} in {answer.text[:300]!r}"
        if answer.status_code == UNREADY:
            raise Unready(about)
        if answer.status_code in (404, 405):
            raise Missing(about)
        if answer.status_code in REFUSED:
            raise UpdateUnsupported(
                f"`policy.server`: {about}.", "Set policy.server.key_variable to the key of its administrator."
            )
        if not answer.is_success:
            raise FlywheelError(f"`policy.server`: {about}.", "See the server's log.")
        try:
            return answer.json() if answer.content else None
        except ValueError:
            return None


class Updater(ABC):
    """One kind of server.

    Args:
        control: its own endpoints.
    """

    way: ClassVar[Literal["name", "restart", "in_place"]] = "in_place"
    """Choice of the answering weights: by the model's name in a request, by a server start, or by a change in place."""
    sleeps: ClassVar[bool] = False
    """Whether it can free its GPU and stay."""
    fields: ClassVar[Mapping[str, Any]] = {}
    """Fields of each request that make the answer name its tokens and weights."""
    hint: ClassVar[str] = "Serve the policy with log probabilities of its sampling distribution."
    """Setting that makes its log probabilities those of sampling."""

    def __init__(self, control: Control) -> None:
        self.control = control

    def keeps(self, model: str) -> bool:
        """Checks whether the model may be asked for by this name whatever weights the server was given since."""
        return True

    def drop(self) -> None:  # noqa: B027  (a server may have no such endpoint: then they are waited for)
        """Aborts the requests in flight; called until there is none."""

    @abstractmethod
    def replace(self, directory: Path, name: str) -> None:
        """Loads the weights of a checkpoint under this name; wakes the server if needed.

        Raises:
            FlywheelError: it refuses. Its weights are then unknown.
            NoAnswer: it could not be asked.
        """

    def add(self, adapter: Path, name: str) -> None:
        """Loads an adapter onto the server's weights, under this name; requests go on meanwhile.

        An updater with this method has `remove` and `asking_for`, too.

        Raises:
            Missing: it loads none, at least not as it was started.
            FlywheelError: it refuses this one.
            NoAnswer: it could not be asked.
        """
        raise Missing("it loads no adapters")

    def remove(self, name: str) -> None:
        """Unloads an adapter."""
        raise Missing("it loads no adapters")

    def asking_for(self, model: str, adapter: str) -> dict[str, Any]:
        """Returns the fields of a request for an adapter of a model."""
        raise NotImplementedError

    def adopt(self, name: str) -> None:  # noqa: B027  (a server may have no names of weights)
        """Gives this name to the weights that the server was started with."""

    def holds(self) -> str | None:
        """Returns the name of the weights that the server holds; None if it does not report it."""
        return None

    def sleep(self) -> None:
        """Frees its GPU until `replace`."""
        raise NotImplementedError

    def asleep(self) -> bool:
        """Checks whether the server reports that it sleeps: another process may have made it sleep, and be gone."""
        return self.holds() == ASLEEP

    def names_in(self, answer: Mapping[str, Any]) -> set[str]:
        """Reads the names of an answer's weights; empty if it has none."""
        return set()


class PathUpdater(Updater):
    """Any server that loads the model that a request names, such as `transformers serve`."""

    way = "name"

    def replace(self, directory: Path, name: str) -> None:
        """Does nothing: the next request names it."""


class RestartUpdater(Updater):
    """Any server that only reads its weights when it starts."""

    way = "restart"

    def replace(self, directory: Path, name: str) -> None:
        """Does nothing: it is restarted."""


UPDATERS = Registry(
    "policy.server.update",
    Updater,
    {
        "path": "models.serving.updater:PathUpdater",
        "vllm": "models.serving.vllm:VllmUpdater",
        "sglang": "models.serving.sglang:SglangUpdater",
        "restart": "models.serving.updater:RestartUpdater",
    },
)
"""Updaters by name."""
