"""Answers the requests of many threads with one model: each reply returns as soon as it has ended.

A prompt that waits takes the place of a reply that has ended, so short replies do not wait for long ones. One thread
runs the model for all requests, since a network on a CPU keeps threads of its own for each thread that runs it. The
thread ends when no request is left, so that it does not hold the model's memory.
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.serving.prefill import Prefill
from models.serving.rows import ROOM, PrefilledRow, Reply, Slots, rows_attention_of

ROOMY = 4
"""Slots are kept for the next prompts unless they have more than so many times the room that these need."""


@dataclass(slots=True)
class ReplyRequest:
    """A prompt whose reply is wanted."""

    prompt: Callable[[], Mapping[str, Tensor]]
    """Makes the processor's tensors of the prompt, one row."""
    pictures: Sequence[int]
    """Numbers below 0 that name its pictures."""
    seed: int
    temperature: float
    """0 is greedy."""
    most: int
    """Maximum tokens of the reply."""
    reply: Reply | None = None
    version: str = ""
    """Version of the weights that sampled the reply."""
    error: Exception | None = None

    @property
    def ended(self) -> bool:
        """Whether there is a reply or an error."""
        return self.reply is not None or self.error is not None


class ContinuousBatch:
    """A model, and the requests that it answers at the same time; safe to share between threads.

    Args:
        model: the model.
        prefill: prefills its prompts.
        alone: answers a prompt of a form that cannot be prefilled.
        size: maximum number of replies that are generated at the same time.
        ends: tokens that end a reply.
        version: version of the model's weights.
    """

    def __init__(
        self,
        model: Any,
        prefill: Prefill,
        alone: Callable[[ReplyRequest, Mapping[str, Tensor]], Reply],
        size: int,
        ends: Sequence[int],
        version: str,
    ) -> None:
        self._model, self._prefill, self._alone, self._size = model, prefill, alone, size
        self.ends, self.version = ends, version
        self.slots: Slots | None = None
        """Memory of the replies."""
        self.changing = threading.Lock()
        """Held while the weights are changed."""
        self.broken: Exception | None = None
        """Why the weights are not those of one version; all requests then fail with it."""
        self._changed = threading.Condition()
        self._waiting: deque[ReplyRequest] = deque()
        self._held: dict[int, ReplyRequest] = {}
        self._thread: threading.Thread | None = None
        self._paused = False

    def answer(self, asked: Sequence[ReplyRequest]) -> None:
        """Waits until all requests have a reply.

        Raises:
            Exception: the first error of a request, after all requests have ended.
        """
        with self._changed:
            self._waiting.extend(asked)
            self._start()
            self._changed.wait_for(lambda: all(one.ended for one in asked))
        for one in asked:
            if one.error is not None:
                raise one.error

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Holds requests back, after the running replies have ended, so that the caller can change the weights."""
        with self._changed:
            self._changed.wait_for(lambda: not self._paused)
            self._paused = True
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._thread is None)
            yield
        finally:
            with self._changed:
                self._paused = False
                self._start()
                self._changed.notify_all()

    def _start(self) -> None:
        """Starts the thread if there is something to do and none runs."""
        if self._is_due() and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="generate", daemon=True)
            self._thread.start()

    def _is_due(self) -> bool:
        return bool(self._held or (self._waiting and not self._paused))

    @torch.inference_mode()
    def _work(self) -> None:
        """Answers requests until none is left."""
        while True:
            with self._changed:
                if not self._is_due():
                    self._thread = None
                    self._changed.notify_all()
                    return
                coming = self._admitted()
            self._begin(coming)
            self._go_on()

    def _admitted(self) -> list[ReplyRequest]:
        """Takes requests in their order, as long as there is a slot for them and they are sampled alike."""
        made = list[ReplyRequest]()
        while self._may_join(made):
            made.append(self._waiting.popleft())
        return made

    def _may_join(self, coming: Sequence[ReplyRequest] = ()) -> bool:
        """Checks whether the next request can join those in slots and these; if not, it begins when they have ended."""
        if not self._waiting or self._paused or len(self._held) + len(coming) >= self._size:
            return False
        one, other = self._waiting[0], next(iter((*self._held.values(), *coming)), self._waiting[0])
        return (one.temperature, one.most) == (other.temperature, other.most)

    def _begin(self, coming: Sequence[ReplyRequest]) -> None:
        """Prefills prompts and puts them into slots."""
        if self.broken is not None:
            self._fail(coming, self.broken)
            return
        prompts = list[tuple[ReplyRequest, Mapping[str, Tensor]]]()
        for one in coming:
            try:
                prompts.append((one, one.prompt()))
            except Exception as error:
                self._end(one, error=error)
        if not prompts:
            return
        try:
            rows = self._prefill([inputs for _, inputs in prompts], [one.pictures for one, _ in prompts])
            for (one, inputs), row in zip(prompts, rows, strict=True):
                if row is None:
                    self._end(one, self._alone(one, inputs))
        except Exception as error:  # of the model, such as for a lack of memory
            self._fail([one for one, _ in prompts], error)
            return
        if filled := [(one, row) for (one, _), row in zip(prompts, rows, strict=True) if row is not None]:
            try:
                self._place(filled)
            except Exception as error:
                self._lose([one for one, _ in filled], error)

    def _place(self, filled: Sequence[tuple[ReplyRequest, PrefilledRow]]) -> None:
        room = max(row.cache.tokens if row.cache else 0 for _, row in filled) + filled[0][0].most
        slots = self._roomy(len(self._held) + len(filled), room, *filled[0])
        free = (slot for slot in range(slots.count) if slot not in self._held)
        for slot, (one, row) in zip(free, filled, strict=False):
            slots.put(slot, row, random.Random(one.seed))
            self._held[slot] = one

    def _go_on(self) -> None:
        """Samples tokens until a reply has ended, or another one can begin."""
        if not self._held:
            return
        assert self.slots is not None
        try:
            with rows_attention_of(self._model):
                ended = self.slots.run(sorted(self._held), self._may_join)
            for slot in ended:
                self._end(self._held[slot], self.slots.read(slot))
        except Exception as error:
            self._lose([], error)
            return
        for slot in ended:
            del self._held[slot]

    def _fail(self, asked: Sequence[ReplyRequest], error: Exception) -> None:
        for one in asked:
            if not one.ended:
                self._end(one, error=error)

    def _lose(self, asked: Sequence[ReplyRequest], error: Exception) -> None:
        """Ends these requests and those in slots, whose state is unknown after an error."""
        held = list(self._held.values())
        self._held.clear()
        self.slots = None
        self._fail([*asked, *held], error)

    def _end(self, one: ReplyRequest, reply: Reply | None = None, error: Exception | None = None) -> None:
        with self._changed:
            one.version, one.reply, one.error = self.version, reply, error
            self._changed.notify_all()

    def _roomy(self, count: int, room: int, one: ReplyRequest, row: PrefilledRow) -> Slots:
        """Returns slots for so many replies, with room for their prompts: the present ones, grown, or new ones."""
        device = self._model.device.type
        room = -(-room // ROOM[device]) * ROOM[device]
        # a GPU captures a step again for another number of slots; a CPU computes slots without a reply, too
        count = self._size if device == "cuda" else min(self._size, 1 << (count - 1).bit_length())
        key = (len(row.positions), one.temperature, one.most)
        alike = self.slots is not None and (self.slots.key, self.slots.count) == (key, count)
        if self.slots is not None and (self._held or (alike and self.slots.room <= ROOMY * room)):
            if self.slots.room < room or self.slots.count < count:
                self.slots = self.slots.grown(max(count, self.slots.count), max(room, self.slots.room))
        else:
            self.slots = Slots(self._model, count, *key, room, sorted(self.ends))
        return self.slots
