"""A server and the weights that it holds, as all who ask it in this process share it.

One gate: requests pass while the weights stay; a change waits for those that are under way (or gives them up), holds
back new ones, and lets them go on under the new weights. So every answer is of one version, and it is known which.
Where the server names the weights that an answer is from, that must be the version, too: what another process changed
meanwhile, or what a server lost when it was started anew, is noticed and brought again.
"""

import atexit
import hashlib
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from models.serving.openai import Endpoint, NoAnswer, OpenAIClient, Unready, pause_before
from models.serving.process import ServerProcess
from models.serving.proof import prove
from models.serving.updater import UPDATERS, Control, Updater
from schemas.config.serving import ServerConfig
from schemas.failure import FlywheelError

DRAIN_S = 0.02
DROP_S = 1.0
"""What was on its way when requests were given up has arrived by then, and is given up too."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A policy's checkpoint, as a server may hold it."""

    directory: Path
    version: str

    @property
    def name(self) -> str:
        """What a server calls them: versions of two lakes may have one name, these files have not."""
        files = sorted(self.directory.iterdir()) if self.directory.is_dir() else []
        seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return f"{self.version}-{hashlib.sha256(repr((str(self.directory), seen)).encode()).hexdigest()[:12]}"


class Served:
    """A server; safe to share between threads.

    Args:
        config: which one.
        log: where what a command prints goes.
        transport: what carries requests, for tests.
    """

    def __init__(self, config: ServerConfig, log: Path, transport: httpx.BaseTransport | None = None) -> None:
        self._config = config
        self._process = ServerProcess(config, log) if config.command else None
        self.endpoint = endpoint_of(config, self._process.url if self._process else config.url)
        self.client = OpenAIClient(self.endpoint, transport)
        self.updater: Updater = UPDATERS.class_of(config.update)(Control(self.endpoint, config.patience_s, transport))
        self._turn = threading.Condition()
        self._changing = threading.Lock()
        self._closed = False
        self._under_way = 0
        self._held: Weights | None = None
        self._wanted: Weights | None = None
        self._named = ""
        """What the server itself calls what it holds; empty where it does not say."""
        self._model = ""
        self._proven = self._unsure = False

    @property
    def fields(self) -> dict[str, Any]:
        """What each request says beside the chat and how it is sampled."""
        return dict(self.updater.fields)

    @property
    def runs(self) -> bool:
        """Whether the process that was started for it is there; of a server that others run it is not known here."""
        return self._process is None or self._process.alive

    def begin(self, weights: Weights) -> None:
        """From here on these weights answer; whoever is under way ends under the old ones, or is sent again.

        Raises:
            FlywheelError: the server refuses them, or did not take them up within `patience_s`.
        """
        self._wanted = weights
        until, attempt = time.monotonic() + self._config.patience_s, 0
        while True:
            try:
                return self._change(weights)
            except NoAnswer as reason:
                attempt += 1
                if time.monotonic() > until:
                    problem = f"`policy.server`: {weights.version} did not reach the server: {reason}."
                    raise FlywheelError(problem, "See that it runs: `flywheel doctor` asks it.") from None
                pause_before(attempt)

    @contextmanager
    def request(self, weights: Weights, follow: bool = False) -> Iterator[tuple[Weights, str]]:
        """The weights that answer within, and the model's name.

        Args:
            weights: of whoever asks.
            follow: whether newer ones may answer, which others have begun.

        Raises:
            NoAnswer: the server cannot be brought to hold them now.
            FlywheelError: it refuses them.
        """
        held = self._enter(weights, follow)
        try:
            yield held, self._name(held)
        finally:
            with self._turn:
                self._under_way -= 1
                self._turn.notify_all()

    def check(self, answer: Mapping[str, Any]) -> None:
        """Raises `Unready` for an answer of other weights than those that the server was brought to hold."""
        names = self.updater.names_in(answer)
        if self._named and names and names != {self._named}:
            self.lose()
            raise Unready(f"{self.endpoint.url}: an answer of the weights {', '.join(sorted(names))}")

    def lose(self) -> None:
        """What the server holds is not known any more: it is brought again before the next request."""
        with self._turn:
            self._held = None

    def make_room(self) -> None:
        """Frees what the server takes for as long as the policy is trained, as `while_training` says."""
        how = self._config.while_training
        if how == "run":
            return
        with self._changing:
            if how == "stop" and self._process is not None:
                self._process.stop()
                self._proven = False
            elif how == "sleep" and self._held is not None:
                with suppress(NoAnswer):
                    self.updater.sleep()
            self.lose()

    def close(self) -> None:
        """Ends the server, if it was started here."""
        if self._process is not None:
            self._process.stop()
        self.lose()

    def _enter(self, weights: Weights, follow: bool) -> Weights:
        while True:
            with self._turn:
                while self._closed:
                    self._turn.wait()
                held = self._held if follow and self.updater.way != "name" else weights
                if held is not None and self._stands(held) and self.runs:
                    self._under_way += 1
                    return held
            self._change((self._wanted if follow else None) or weights)

    def _stands(self, weights: Weights) -> bool:
        """Whether these weights would answer."""
        return self._held is not None and (self._held == weights or self.updater.way == "name")

    def _change(self, weights: Weights) -> None:
        with self._changing:
            if self._stands(weights) and self.runs:
                return
            with self._turn:
                self._closed = True
            try:
                self._empty()
                self._held = None
                self._bring(weights)
                if self._config.logprobs and not self._proven:
                    prove(
                        self.client,
                        {"model": self._name(weights), **self.fields, **self._config.extra},
                        self.updater.hint,
                    )
                    self._proven = True
                self._held = weights
            finally:
                with self._turn:
                    self._closed = False
                    self._turn.notify_all()

    def _empty(self) -> None:
        """Nothing is under way."""
        dropped = -DROP_S
        while self._under_way:
            if self._config.in_flight == "drop" and self.runs and time.monotonic() - dropped > DROP_S:
                dropped = time.monotonic()
                if self.updater.way == "restart" and self._process is not None:
                    self._process.stop()
                else:
                    self.updater.drop()
            time.sleep(DRAIN_S)

    def _bring(self, weights: Weights) -> None:
        """Brings weights to the server."""
        name = weights.name
        if self._process is not None and (self.updater.way == "restart" or not self._process.alive):
            self._proven, self._model = False, ""
            self._process.start(weights.directory)
            self.updater.adopt(name)
        elif self.updater.way == "in_place" and (self._unsure or self.updater.holds() != name or self.updater.asleep()):
            self._unsure = True
            self.updater.replace(weights.directory, name)
        self._unsure = False
        self._named = name if self.updater.holds() == name else ""

    def _name(self, weights: Weights) -> str:
        """What the server calls the model."""
        named = self._config.model
        if self.updater.way != "in_place" or ("{checkpoint}" not in named and "{version}" not in named):
            return named.replace("{checkpoint}", str(weights.directory)).replace("{version}", weights.version)
        if not self._model:
            if not (names := self.client.names()):
                raise NoAnswer(f"{self.endpoint.url} lists no model")
            self._model = names[0]
        return self._model


def endpoint_of(config: ServerConfig, url: str = "") -> Endpoint:
    """The policy's server as an endpoint; `url` in place of the configured one."""
    return Endpoint(
        "policy.server", url or config.url, config.key_variable, config.timeout_s, config.retries, config.concurrency,
        waits=True,
    )  # fmt: skip


_lock = threading.Lock()
_served: dict[str, Served] = {}


def served_by(config: ServerConfig, log: Path) -> Served:
    """The server of a config, one per process."""
    with _lock:
        key = config.model_dump_json()
        if key not in _served:
            _served[key] = Served(config, log)
        return _served[key]


def make_room(config: ServerConfig) -> None:
    """Frees what the server of a config takes, if it is asked by this process and the config says so."""
    if (served := _served.get(config.model_dump_json())) is not None:
        served.make_room()


def close_servers() -> None:
    """Ends all servers that this process has started."""
    with _lock:
        for served in _served.values():
            served.close()
        _served.clear()


atexit.register(close_servers)
