"""Defines updaters, which load new weights into a server by the server's own endpoints.

Rollouts keep sending requests while weights change; `models.serving.served` holds the requests back during the change.
An updater knows only one kind of server: the order of calls, and the field of an answer that names its weights.
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

If the process is killed in between, these names show that the weights are not trusted, or that the server must be
woken.
"""


class Missing(NoAnswer):
    """Raised if the server has no such endpoint."""


class UpdateUnsupported(FlywheelError):
    """Raised if the server refuses the key or was not started with this feature; a restart would not help."""


class Control:
    """Client of a server's own endpoints, outside of OpenAI's protocol.

    Args:
        endpoint: the server.
        timeout_s: maximum time of one call, such as a load of weights.
        transport: carries requests, for tests.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float, transport: httpx.BaseTransport | None = None) -> None:
        self.root = endpoint.url.rstrip("/").removesuffix("/v1")
        self._client = httpx.Client(headers=headers_of(endpoint), timeout=timeout_s, transport=transport)

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """Returns the answer of an endpoint, as JSON; None if the answer is empty.

        Raises:
            Missing: the server has no such endpoint. Unreachable, Unready: the server does not answer now.
            Unable: the server refuses the key.
            FlywheelError: the server refuses; the message quotes its answer.
        """
        return self._answer("POST", path, json=dict(body or {}), params=query)

    def get(self, path: str) -> Any:
        """Requests as `post`, without a body."""
        return self._answer("GET", path)

    def models(self) -> list[str]:
        """Lists the models' names, over other connections than the chats'."""
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
    """Loads weights into one kind of server.

    Args:
        control: client of the server's own endpoints.
    """

    way: ClassVar[Literal["name", "restart", "in_place"]] = "in_place"
    """How the answering weights are chosen: by the model's name in a request, by a server start, or by a change in
    place."""
    sleeps: ClassVar[bool] = False
    """Whether the server can free its GPU and keep running."""
    fields: ClassVar[Mapping[str, Any]] = {}
    """Request fields that make an answer name its tokens and weights."""
    hint: ClassVar[str] = "Serve the policy with log probabilities of its sampling distribution."
    """Setting that makes the server report the log probabilities of its sampling distribution."""

    def __init__(self, control: Control) -> None:
        self.control = control

    def keeps(self, model: str) -> bool:
        """Checks whether a request may use this model name even after the server got other weights."""
        return True

    def drop(self) -> None:  # noqa: B027  (a server may have no such endpoint: then they are waited for)
        """Aborts the requests in flight; called until there is none."""

    @abstractmethod
    def replace(self, directory: Path, name: str) -> None:
        """Loads the weights of a checkpoint under this name; wakes the server if needed.

        Raises:
            FlywheelError: the server refuses. Its weights are then unknown.
            NoAnswer: the server did not answer.
        """

    def add(self, adapter: Path, name: str) -> None:
        """Loads an adapter onto the server's weights, under this name; requests continue meanwhile.

        An updater with this method has `remove` and `asking_for`, too.

        Raises:
            Missing: the server cannot load adapters, at least not as it was started.
            FlywheelError: the server refuses this adapter.
            NoAnswer: the server did not answer.
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
        """Returns the name of the weights that the server holds; None if it reports none."""
        return None

    def sleep(self) -> None:
        """Frees the server's GPU until `replace`."""
        raise NotImplementedError

    def asleep(self) -> bool:
        """Checks whether the server reports that it sleeps, since a process that has ended may have put it to sleep."""
        return self.holds() == ASLEEP

    def names_in(self, answer: Mapping[str, Any]) -> set[str]:
        """Reads the names of an answer's weights; empty if it names none."""
        return set()


class PathUpdater(Updater):
    """Updater of a server that loads the model that a request names, such as `transformers serve`."""

    way = "name"

    def replace(self, directory: Path, name: str) -> None:
        """Does nothing, since the next request names the checkpoint."""


class RestartUpdater(Updater):
    """Updater of a server that reads its weights only when it starts."""

    way = "restart"

    def replace(self, directory: Path, name: str) -> None:
        """Does nothing, since the server is restarted."""


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
