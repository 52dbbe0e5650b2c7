"""Shares a model server among all threads of a process, and tracks the weights that it holds.

Requests pass while the weights stay the same. A change of weights waits for running requests (or aborts them), holds
back new requests, and releases them under the new weights. So every answer comes from one known version. If the server
names the weights of an answer, the name must match the version. A mismatch means that another process changed the
weights or that a restart lost them; the weights are then loaded again.

A training with adapters publishes only the adapter, if the server supports this. The server adds the adapter, under a
name of its own, to the base weights that it was trained on. So no request has to wait.
"""

import atexit
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from models.safe import require_servable
from models.serving.adapters import Adapters
from models.serving.openai import (
    Endpoint,
    NoAnswer,
    OpenAIClient,
    Rejected,
    Unknown,
    Unreachable,
    Unready,
    pause_before,
)
from models.serving.process import ServerProcess
from models.serving.proof import Readable, Sampling, prove, require_sampling
from models.serving.updater import UPDATERS, Control, Updater, UpdateUnsupported
from models.weights import OURS, Weights, adapter_of, fingerprint
from schemas.config.policy import ServerConfig
from schemas.failure import FlywheelError

FIRST = 8
"""Number of first answers after which a server without any readable reply is refused."""
DRAIN_S = 0.02
DROP_S = 1.0
"""Seconds between two aborts, so that the second one reaches requests that were in transit at the first."""


class ModelServer:
    """A model server and its weights; safe to share between threads.

    Args:
        config: its config.
        log: file for the output of the server's command.
        transport: the HTTP transport, for tests.
    """

    def __init__(self, config: ServerConfig, log: Path, transport: httpx.BaseTransport | None = None) -> None:
        self._config = config
        self._process = ServerProcess(config, log) if config.command else None
        self.endpoint = endpoint_of(config, self._process.url if self._process else config.url)
        self.client = OpenAIClient(self.endpoint, transport)
        self._sampling = Sampling(self.client)
        self._readable = Readable(FIRST)
        self.updater: Updater = UPDATERS.class_of(config.update)(Control(self.endpoint, config.patience_s, transport))
        self._turn = threading.Condition()
        self._changing, self._testing = threading.Lock(), threading.Lock()
        self._closed = False
        self._under_way: Counter[Weights] = Counter()
        self._held: Weights | None = None
        """Weights that answer requests with `follow`: the last loaded weights."""
        self._wanted: Weights | None = None
        self._whole: Weights | None = None
        self._whole_print = ""
        """Base weights of the server, and their fingerprint."""
        self._log = log
        self._adapters = Adapters(self.updater, self._turn, self._note)
        self._named = ""
        """The server's own name of its weights; empty if it gives none."""
        self._model = ""
        self._proven = self._samples = self._unsure = False
        self._refused: FlywheelError | None = None
        """Refusal of the test that the server samples."""

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of every request except the chat and the sampling fields."""
        return dict(self.updater.fields)

    @property
    def runs(self) -> bool:
        """Whether the server's process is alive; always true for a server that this project did not start."""
        return self._process is None or self._process.alive

    def begin(self, weights: Weights) -> None:
        """Switches to these weights; running requests end under the old weights, or are sent again.

        Raises:
            FlywheelError: the server refuses them, or did not load them within `patience_s`.
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
                    raise FlywheelError(problem, "Check that it runs: `flywheel doctor` asks it.") from None
                pause_before(attempt)

    @contextmanager
    def request(self, weights: Weights, follow: bool = False) -> Iterator[tuple[Weights, dict[str, Any]]]:
        """Keeps the weights loaded during a request; yields them and the request's fields that select them.

        Args:
            weights: the caller's weights.
            follow: whether newer weights may answer, which another caller has begun to load.

        Raises:
            NoAnswer: the server cannot load the weights at present.
            FlywheelError: the server refuses the weights.
        """
        held, adapter = self._enter(weights, follow)
        try:
            yield held, self._naming(held, adapter)
        except (NoAnswer, Unknown) as failure:
            if isinstance(failure, Unready | Unreachable) or adapter is None:
                raise
            if not (isinstance(failure, Unknown) or self._adapters.lost(held, adapter)):
                raise
            self.lose()
            raise Unready(f"{self.endpoint.url} has lost the adapter {adapter}") from None
        finally:
            with self._turn:
                self._under_way[held] -= 1
                self._turn.notify_all()

    def ask(self, weights: Weights, body: Mapping[str, Any], temperature: float) -> dict[str, Any]:
        """Requests a completion sampled from these weights' whole distribution, within their `request`.

        The first request with a temperature waits for a test that the server samples.

        Raises:
            NoAnswer, FlywheelError: as `Sampling.ask`; the server does not sample.
        """
        if temperature and not self._samples:
            with self._testing, self._accepted():
                if self._refused is not None:
                    raise self._refused
                if not self._samples:
                    self._test_sampling(weights, body)
        return self._sampling.ask(body, temperature, weights.directory)

    def _test_sampling(self, weights: Weights, body: Mapping[str, Any]) -> None:
        """Tests that the server samples, and keeps a refusal for the requests that wait."""
        try:
            require_sampling(partial(self._sampling.ask, checkpoint=weights.directory), body)
        except FlywheelError as refused:
            self._refused = refused
            raise
        self._samples = True

    def check(self, answer: Mapping[str, Any]) -> None:
        """Checks an answer's weights and readability.

        Raises:
            Unready: the answer comes from other weights than the last loaded ones.
            FlywheelError: the first answers hold no readable reply (`Readable`).
        """
        self._readable.check(answer)
        names = self.updater.names_in(answer)
        if len(names) > 1 or (self._named and names and names != {self._named}):
            self.lose()
            raise Unready(f"{self.endpoint.url}: an answer of the weights {', '.join(sorted(names))}")

    def lose(self) -> None:
        """Forgets the server's weights, so that they are loaded again before the next request."""
        with self._turn:
            self._held = self._whole = None
            self._whole_print = self._model = ""
            self._adapters.forget()

    def make_room(self) -> None:
        """Frees the server's memory during training, as `while_training` sets."""
        how = self._config.while_training
        if how == "run":
            return
        with self._changing:
            if how == "stop" and self._process is not None:
                self._process.stop()
                self._proven = False
            elif how == "sleep" and self._held is not None:
                with suppress(NoAnswer, FlywheelError):
                    self._adapters.unload()
                self._adapters.slept = True
                with suppress(NoAnswer):
                    self.updater.sleep()
            self.lose()

    def close(self) -> None:
        """Stops the server, if this process started it."""
        if self._process is not None:
            self._process.stop()
        self.lose()

    def _enter(self, weights: Weights, follow: bool) -> tuple[Weights, str | None]:
        """Registers a request; returns the weights that answer it, and their adapter's name, under one lock."""
        while True:
            with self._turn:
                while self._closed:
                    self._turn.wait()
                held = self._held if follow and self.updater.way != "name" else weights
                if held is not None and self._is_loaded(held) and self.runs:
                    adapter = self._adapter_name(held)
                    self._under_way[held] += 1
                    return held, adapter
            self._change((self._wanted if follow else None) or weights)

    def _is_loaded(self, weights: Weights) -> bool:
        """Checks whether the server already holds these weights."""
        if self._held is None or self.updater.way == "name":
            return self._held is not None
        return weights == self._whole or self._adapter_name(weights) is not None

    def _adapter_name(self, weights: Weights) -> str | None:
        """Returns the name of these weights' adapter on the server; None for base weights or no adapter."""
        return None if weights == self._whole else self._adapters.name(weights, self._whole_print)

    def _change(self, weights: Weights) -> None:
        with self._changing:
            if self._is_loaded(weights) and self.runs:
                self._held = weights
                return
            known = self._proven or not self._config.logprobs
            if known and (self._is(weights) or (self._config.in_flight == "finish" and self._joined(weights))):
                self._held = weights
                return
            with self._turn:
                self._closed = True
            try:
                self._empty()
                self._held = None
                self._load(weights)
                if self._config.logprobs and not self._proven:
                    asked = {**self._naming(weights, self._adapter_name(weights)), **self.fields, **self._config.extra}
                    with self._accepted():
                        prove(self.client, asked, self.updater.hint)
                    self._proven = True
                self._held = weights
            finally:
                with self._turn:
                    self._closed = False
                    self._turn.notify_all()

    @contextmanager
    def _accepted(self) -> Iterator[None]:
        """Raises FlywheelError if the server refuses the request of a test."""
        try:
            yield
        except Rejected as reason:
            raise FlywheelError(
                f"`policy.server` refuses a chat with an image and sampling fields: {reason}.",
                "See its log and policy.server.extra; it must accept all sampling fields of a request.",
            ) from None

    def _empty(self) -> None:
        """Waits until no request is running; aborts running requests if `in_flight` is drop."""
        dropped = -DROP_S
        while self._under_way.total():
            if self._config.in_flight == "drop" and self.runs and time.monotonic() - dropped > DROP_S:
                dropped = time.monotonic()
                if self.updater.way == "restart" and self._process is not None:
                    self._process.stop()
                else:
                    self.updater.drop()
            time.sleep(DRAIN_S)

    def _load(self, weights: Weights) -> None:
        """Loads weights into the server while no request is running."""
        if self.updater.way != "name":
            require_servable(weights.directory)
        if self._process is not None and (self.updater.way == "restart" or not self._process.alive):
            self._start(weights)
        elif self.updater.way != "in_place":
            self._whole = weights
        elif not (self._joined(weights) or self._joined_to_parent(weights)):
            self._hold(weights)

    def _start(self, weights: Weights) -> None:
        """Starts the server's command with these weights."""
        assert self._process is not None
        self._proven, self._samples, self._refused = False, False, None
        self.lose()
        self._note(f"starting the command with {weights.version}")
        self._process.start(weights.directory)
        self._adapters.slept = False
        self.updater.adopt(weights.name)
        self._settle(weights, fingerprint(weights.directory))

    def _hold(self, weights: Weights) -> None:
        """Makes these weights the server's base weights."""
        wanted, held, asleep = fingerprint(weights.directory), self.updater.holds(), self._asleep()
        there = _print_in(held) if held is not None else self._whole_print
        if self._unsure or asleep or not there or there != wanted:
            self._unsure = True
            with self._turn:
                self._whole, self._whole_print, self._model = None, "", ""
            try:
                self.updater.replace(weights.directory, weights.name)
            except FlywheelError as refusal:
                if self._process is None or isinstance(refusal, UpdateUnsupported):
                    raise
                self._note(f"{weights.version} was refused; restarting the server with it: {refusal}")
                self._start(weights)
            if asleep:
                self._adapters.unload()
        self._unsure = False
        self._settle(weights, wanted)

    def _settle(self, weights: Weights, wanted: str) -> None:
        """Records these weights as the server's base weights; raises Unready if the server got other weights
        meanwhile."""
        named = self.updater.holds()
        if named is not None and OURS.search(named) and _print_in(named) != wanted:
            raise Unready(f"{self.endpoint.url}: another process loaded {named} in place of {weights.name}")
        self._named = named if named is not None and _print_in(named) == wanted else ""
        with self._turn:
            self._whole, self._whole_print = weights, wanted

    def _is(self, weights: Weights) -> bool:
        """Checks whether the server's base weights equal these weights, under any name."""
        if self.updater.way != "in_place" or not self.runs:
            return False
        found = fingerprint(weights.directory)
        with self._turn:
            if not found or found != self._whole_print:
                return False
            self._whole = weights
        return True

    def _joined(self, weights: Weights) -> bool:
        """Loads these weights as an adapter of the server's base weights, without stopping requests, if it can."""
        if self.updater.way != "in_place" or not self.runs:
            return False
        adapter = adapter_of(weights.directory)
        return (
            adapter is not None
            and adapter.fingerprint == self._whole_print
            and self._adapters.take(weights, adapter, self._busy)
        )

    def _joined_to_parent(self, weights: Weights) -> bool:
        """Loads the adapter's base weights and then the adapter, so that the next adapter can use the same base
        weights."""
        adapter = adapter_of(weights.directory)
        if adapter is None or not self._adapters.may(weights) or fingerprint(adapter.parent) != adapter.fingerprint:
            return False
        parent = Weights(adapter.parent, "parent")
        if self._asleep():  # an adapter loaded into a sleeping server is lost
            self._hold(parent)
        if not self._adapters.take(weights, adapter, self._busy):
            return False
        self._hold(parent)
        return self._adapters.take(weights, adapter, self._busy)  # a restarted server has lost the adapter

    def _asleep(self) -> bool:
        """Checks whether the server sleeps, or has slept since its weights were loaded."""
        self._adapters.slept = self._adapters.slept or self.updater.asleep()
        return self._adapters.slept

    def _busy(self, weights: Weights) -> bool:
        return self._under_way[weights] > 0

    def _naming(self, weights: Weights, adapter: str | None) -> dict[str, Any]:
        """Returns the fields of a request that select these weights."""
        model = self._name(weights)
        return {"model": model} if adapter is None else self.updater.asking_for(model, adapter)

    def _name(self, weights: Weights) -> str:
        """Returns the model's name on the server."""
        named = self._config.model
        plain = "{checkpoint}" not in named and "{version}" not in named
        if self.updater.way != "in_place" or (plain and self.updater.keeps(named)):
            return named.replace("{checkpoint}", str(weights.directory)).replace("{version}", weights.version)
        if not self._model:
            if not (names := self.updater.control.models()):
                raise NoAnswer(f"{self.endpoint.url} lists no model")
            self._model = next((name for name in names if not OURS.search(name)), names[0])
        return self._model

    def _note(self, line: str) -> None:
        """Appends a line to the server's log, which also holds the command's output."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as log:
            log.write(f"flywheel: {line}\n")


def _print_in(name: str) -> str:
    """Returns the fingerprint in a name of weights."""
    return name.rpartition("-")[2]


def endpoint_of(config: ServerConfig, url: str = "") -> Endpoint:
    """Returns the endpoint of the policy's server, at `url` if it is given."""
    return Endpoint(
        "policy.server", url or config.url, config.key_variable, config.timeout_s, config.retries, config.concurrency,
        waits=True,
    )  # fmt: skip


_lock = threading.Lock()
_served: dict[str, ModelServer] = {}


def served_by(config: ServerConfig, log: Path) -> ModelServer:
    """Returns the server of a config, one per process."""
    with _lock:
        key = config.model_dump_json()
        if key not in _served:
            _served[key] = ModelServer(config, log)
        return _served[key]


def make_room(config: ServerConfig) -> None:
    """Frees the memory of a config's server, if this process uses the server and the config asks for it."""
    if (served := _served.get(config.model_dump_json())) is not None:
        served.make_room()


def close_servers() -> None:
    """Stops all servers that this process has started."""
    with _lock:
        for served in _served.values():
            served.close()
        _served.clear()


atexit.register(close_servers)
