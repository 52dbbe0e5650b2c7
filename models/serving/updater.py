"""The seam between a server and new weights: by which of its own endpoints it takes them up.

Who rolls out goes on with requests while weights change (`models.serving.served` closes the gate for that moment). An
updater only knows one kind of server: what to call in which order, and where its answers name the weights they are
from.
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
"""What weights are called while they change, and while the server sleeps without them: who is killed meanwhile leaves a
server whose weights are not trusted, or that has to be woken."""


class Missing(NoAnswer):
    """The server has no such endpoint."""


class UpdateUnsupported(FlywheelError):
    """The server was not started for this, or does not take the key: starting it anew would not mend that."""


class Control:
    """A server's own endpoints, beside those of OpenAI's protocol.

    Args:
        endpoint: the server.
        timeout_s: how long one call may take; loading weights is such a call.
        transport: what carries requests, for tests.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float, transport: httpx.BaseTransport | None = None) -> None:
        self.root = endpoint.url.rstrip("/").removesuffix("/v1")
        self._client = httpx.Client(headers=headers_of(endpoint), timeout=timeout_s, transport=transport)

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """What an endpoint answers, as JSON; None where it answers nothing.

        Raises:
            Missing: there is no such endpoint.
            Unreachable, Unready: it cannot be asked now.
            Unable: it does not take the key.
            FlywheelError: it refuses; quotes it.
        """
        return self._answer("POST", path, json=dict(body or {}), params=query)

    def get(self, path: str) -> Any:
        """As `post`, without a body."""
        return self._answer("GET", path)

    def models(self) -> list[str]:
        """The names that it lists; not by the connections that chats wait for."""
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
            raise FlywheelError(f"`policy.server`: {about}.", "Its log says more.")
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
    """How the weights that answer are chosen: by the model's name in each request; by starting the server; or they are
    changed below one name."""
    sleeps: ClassVar[bool] = False
    """Whether it can free its GPU and stay."""
    fields: ClassVar[Mapping[str, Any]] = {}
    """What each request has to say so that the answer names its tokens and the weights it is from."""
    hint: ClassVar[str] = "Serve the policy with log probabilities of what it samples from."
    """What to set where its log probabilities are not those of sampling."""

    def __init__(self, control: Control) -> None:
        self.control = control

    def keeps(self, model: str) -> bool:
        """Whether the model may be asked for by this name whatever weights the server was given since."""
        return True

    def drop(self) -> None:  # noqa: B027  (a server may have no such endpoint: then they are waited for)
        """Gives up the requests that are under way; is called until none is."""

    @abstractmethod
    def replace(self, directory: Path, name: str) -> None:
        """Takes up the weights of a checkpoint, which the server calls by this name from then on; wakes it if need be.

        Raises:
            FlywheelError: it refuses. What it holds then is unknown.
            NoAnswer: it could not be asked.
        """

    def add(self, adapter: Path, name: str) -> None:
        """Loads an adapter beside the weights that it holds, to be asked for by this name; requests go on meanwhile.

        Who has this has `remove` and `asking_for`, too.

        Raises:
            Missing: it loads none, at least not as it was started.
            FlywheelError: it refuses this one.
            NoAnswer: it could not be asked.
        """
        raise Missing("it loads no adapters")

    def remove(self, name: str) -> None:
        """Forgets an adapter."""
        raise Missing("it loads no adapters")

    def asking_for(self, model: str, adapter: str) -> dict[str, Any]:
        """What a request says that is for an adapter beside a model."""
        raise NotImplementedError

    def adopt(self, name: str) -> None:  # noqa: B027  (a server may have no names of weights)
        """Gives this name to the weights that the server was started with."""

    def holds(self) -> str | None:
        """The name of the weights that the server holds; None if it does not say."""
        return None

    def sleep(self) -> None:
        """Frees its GPU until `replace`."""
        raise NotImplementedError

    def asleep(self) -> bool:
        """Whether it frees its GPU now, as it says itself: another process may have told it to, and be gone."""
        return self.holds() == ASLEEP

    def names_in(self, answer: Mapping[str, Any]) -> set[str]:
        """The names of the weights that an answer says it is from; empty if it says none."""
        return set()


class PathUpdater(Updater):
    """Any server that loads what a request names, such as `transformers serve`."""

    way = "name"

    def replace(self, directory: Path, name: str) -> None:
        """Nothing: the next request names it."""


class RestartUpdater(Updater):
    """Any server that only reads its weights when it starts."""

    way = "restart"

    def replace(self, directory: Path, name: str) -> None:
        """Nothing: it is started anew."""


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
"""Ways by name."""
