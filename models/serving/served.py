"""A server and the weights that it holds, as all who ask it in this process share it.

One gate: requests pass while the weights stay; a change waits for those that are under way (or gives them up), holds
back new ones, and lets them go on under the new weights. So every answer is of one version, and it is known which.
Where the server names the weights that an answer is from, that must be the version, too: what another process changed
meanwhile, or what a server lost when it was started anew, is noticed and brought again.

What a training with adapters made is brought as the adapter alone, where the server takes it: beside the weights that
it was trained beside, under a name of its own, so that nobody has to wait.
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
from schemas.config.serving import ServerConfig
from schemas.failure import FlywheelError

FIRST = 8
"""Answers without any reply after which a server is refused."""
DRAIN_S = 0.02
DROP_S = 1.0
"""What was on its way when requests were given up has arrived by then, and is given up too."""


class ModelServer:
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
        self._sampling = Sampling(self.client)
        self._readable = Readable(FIRST)
        self.updater: Updater = UPDATERS.class_of(config.update)(Control(self.endpoint, config.patience_s, transport))
        self._turn = threading.Condition()
        self._changing = threading.Lock()
        self._closed = False
        self._under_way: Counter[Weights] = Counter()
        self._held: Weights | None = None
        """What answers those who follow: what was brought last."""
        self._wanted: Weights | None = None
        self._whole: Weights | None = None
        self._whole_print = ""
        """Whose weights the server itself has, and their fingerprint."""
        self._log = log
        self._adapters = Adapters(self.updater, self._turn, self._note)
        self._named = ""
        """What the server itself calls what it holds; empty where it does not say."""
        self._model = ""
        self._proven = self._samples = self._unsure = False

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
            FlywheelError: the server refuses them, did not take them up within `patience_s`, or does not sample.
        """
        self._wanted = weights
        until, attempt = time.monotonic() + self._config.patience_s, 0
        while True:
            try:
                self._change(weights)
                return self._require_sampling(weights)
            except Rejected as reason:
                raise FlywheelError(
                    f"`policy.server` refuses a chat with a picture that says how it is sampled: {reason}.",
                    "See its log and policy.server.extra; it must not decide by itself what is sampled.",
                ) from None
            except NoAnswer as reason:
                attempt += 1
                if time.monotonic() > until:
                    problem = f"`policy.server`: {weights.version} did not reach the server: {reason}."
                    raise FlywheelError(problem, "See that it runs: `flywheel doctor` asks it.") from None
                pause_before(attempt)

    def _require_sampling(self, weights: Weights) -> None:
        """Tests once whether the server samples."""
        if not self._samples:
            with self.request(weights) as (_, named):
                ask = partial(self.ask, weights)
                require_sampling(ask, {**named, **self.fields, **self._config.extra})
            self._samples = True

    @contextmanager
    def request(self, weights: Weights, follow: bool = False) -> Iterator[tuple[Weights, dict[str, Any]]]:
        """The weights that answer within, and what a request says to have them.

        Args:
            weights: of whoever asks.
            follow: whether newer ones may answer, which others have begun.

        Raises:
            NoAnswer: the server cannot be brought to hold them now.
            FlywheelError: it refuses them.
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
        """Asks for a completion of the whole distribution of these weights, within their `request`.

        Raises:
            NoAnswer, FlywheelError: as `Sampling.ask`.
        """
        return self._sampling.ask(body, temperature, weights.directory)

    def check(self, answer: Mapping[str, Any]) -> None:
        """Takes an answer.

        Raises:
            Unready: it is of other weights than those that the server was brought to hold.
            FlywheelError: the first answers hold no reply that could be read (`Readable`).
        """
        self._readable.check(answer)
        names = self.updater.names_in(answer)
        if len(names) > 1 or (self._named and names and names != {self._named}):
            self.lose()
            raise Unready(f"{self.endpoint.url}: an answer of the weights {', '.join(sorted(names))}")

    def lose(self) -> None:
        """What the server holds is not known any more: it is brought again before the next request."""
        with self._turn:
            self._held = self._whole = None
            self._whole_print = self._model = ""
            self._adapters.forget()

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
                with suppress(NoAnswer, FlywheelError):
                    self._adapters.unload()
                self._adapters.slept = True
                with suppress(NoAnswer):
                    self.updater.sleep()
            self.lose()

    def close(self) -> None:
        """Ends the server, if it was started here."""
        if self._process is not None:
            self._process.stop()
        self.lose()

    def _enter(self, weights: Weights, follow: bool) -> tuple[Weights, str | None]:
        """Whose weights answer, and the adapter's name if it is one's, seen at the same moment."""
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
        """Whether these weights would answer."""
        if self._held is None or self.updater.way == "name":
            return self._held is not None
        return weights == self._whole or self._adapter_name(weights) is not None

    def _adapter_name(self, weights: Weights) -> str | None:
        """The name of the adapter that makes them of what the server has, if they are not that by themselves."""
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
                    prove(self.client, asked, self.updater.hint)
                    self._proven = True
                self._held = weights
            finally:
                with self._turn:
                    self._closed = False
                    self._turn.notify_all()

    def _empty(self) -> None:
        """Nothing is under way."""
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
        """Brings weights to the server, while nobody asks it."""
        if self.updater.way != "name":
            require_servable(weights.directory)
        if self._process is not None and (self.updater.way == "restart" or not self._process.alive):
            self._start(weights)
        elif self.updater.way != "in_place":
            self._whole = weights
        elif not (self._joined(weights) or self._joined_to_parent(weights)):
            self._hold(weights)

    def _start(self, weights: Weights) -> None:
        """Starts the command with these weights."""
        assert self._process is not None
        self._proven = self._samples = False
        self.lose()
        self._note(f"the command is started with {weights.version}")
        self._process.start(weights.directory)
        self._adapters.slept = False
        self.updater.adopt(weights.name)
        self._settle(weights, fingerprint(weights.directory))

    def _hold(self, weights: Weights) -> None:
        """Has the server's own weights be these."""
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
                self._note(f"{weights.version} was refused, and the server is started anew with it: {refusal}")
                self._start(weights)
            if asleep:
                self._adapters.unload()
        self._unsure = False
        self._settle(weights, wanted)

    def _settle(self, weights: Weights, wanted: str) -> None:
        """These are the server's own weights now; raises Unready if it has been given others meanwhile."""
        named = self.updater.holds()
        if named is not None and OURS.search(named) and _print_in(named) != wanted:
            raise Unready(f"{self.endpoint.url}: others gave it {named} in place of {weights.name}")
        self._named = named if named is not None and _print_in(named) == wanted else ""
        with self._turn:
            self._whole, self._whole_print = weights, wanted

    def _is(self, weights: Weights) -> bool:
        """Whether the server has them as its own, by whichever name."""
        if self.updater.way != "in_place" or not self.runs:
            return False
        found = fingerprint(weights.directory)
        with self._turn:
            if not found or found != self._whole_print:
                return False
            self._whole = weights
        return True

    def _joined(self, weights: Weights) -> bool:
        """Whether they answer beside what the server has, as an adapter, without anybody having to wait."""
        if self.updater.way != "in_place" or not self.runs:
            return False
        adapter = adapter_of(weights.directory)
        return (
            adapter is not None
            and adapter.fingerprint == self._whole_print
            and self._adapters.take(weights, adapter, self._busy)
        )

    def _joined_to_parent(self, weights: Weights) -> bool:
        """The same, where the server has to be given what the adapter stands beside: the next one may, too."""
        adapter = adapter_of(weights.directory)
        if adapter is None or not self._adapters.may(weights) or fingerprint(adapter.parent) != adapter.fingerprint:
            return False
        parent = Weights(adapter.parent, "parent")
        if self._asleep():  # what an adapter is loaded into then is lost
            self._hold(parent)
        if not self._adapters.take(weights, adapter, self._busy):
            return False
        self._hold(parent)
        return self._adapters.take(weights, adapter, self._busy)  # a server that was started anew has forgotten it

    def _asleep(self) -> bool:
        """Whether the server sleeps, or what it has is from before it did."""
        self._adapters.slept = self._adapters.slept or self.updater.asleep()
        return self._adapters.slept

    def _busy(self, weights: Weights) -> bool:
        return self._under_way[weights] > 0

    def _naming(self, weights: Weights, adapter: str | None) -> dict[str, Any]:
        """What a request says to have them."""
        model = self._name(weights)
        return {"model": model} if adapter is None else self.updater.asking_for(model, adapter)

    def _name(self, weights: Weights) -> str:
        """What the server calls the model."""
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
        """A line in the server's log, where what a command prints goes, too."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as log:
            log.write(f"flywheel: {line}\n")


def _print_in(name: str) -> str:
    """The fingerprint in a name of weights."""
    return name.rpartition("-")[2]


def endpoint_of(config: ServerConfig, url: str = "") -> Endpoint:
    """The policy's server as an endpoint; `url` in place of the configured one."""
    return Endpoint(
        "policy.server", url or config.url, config.key_variable, config.timeout_s, config.retries, config.concurrency,
        waits=True,
    )  # fmt: skip


_lock = threading.Lock()
_served: dict[str, ModelServer] = {}


def served_by(config: ServerConfig, log: Path) -> ModelServer:
    """The server of a config, one per process."""
    with _lock:
        key = config.model_dump_json()
        if key not in _served:
            _served[key] = ModelServer(config, log)
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
