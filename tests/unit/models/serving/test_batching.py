"""Requests of many threads that one model answers together, and weights that change under it."""

import gc
import json
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from models.completion import Completion
from models.policy import Context
from models.random_vlm import KINDS, build_random
from models.serving import batching, local
from models.vlm import VlmPolicy
from schemas.failure import CheckpointError
from tests.fixtures.sentences import Sentences
from tests.unit.models.serving.test_local import policy
from tests.unit.models.serving.test_prefill import keys_of, steps
from tests.unit.models.test_vlm import TEXTS

SHORT, LONG = steps(0)[0], replace(steps(1)[0], seed=7)


def built(folder: Path, kind: Any = "qwen3_vl", seed: int = 0, **sizes: Any) -> Path:
    build_random(kind, TEXTS, seed, folder / f"{kind}-{seed}", **sizes)
    return folder / f"{kind}-{seed}"


def at_once(model: VlmPolicy, contexts: list[Context], temperature: float = 1.0) -> list[Completion]:
    """Each context in a call and a thread of its own."""
    with ThreadPoolExecutor(len(contexts)) as threads:
        return [made[0] for made in threads.map(lambda one: model.act([one], temperature), contexts)]


def assert_same(made: list[Completion], wanted: list[Completion]) -> None:
    for one, other in zip(made, wanted, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


class Gate:
    """Lets a model sample a token of each reply only so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes = threading.Semaphore(0)
        step = batching.Slots._step_all

        def gated(slots: Any) -> None:
            assert self.passes.acquire(timeout=60)
            step(slots)

        monkeypatch.setattr(batching.Slots, "_step_all", gated)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_many_threads_get_the_replies_that_each_gets_alone(kind: Any, tmp_path: Path) -> None:
    directory = built(tmp_path, kind)
    contexts = [replace(one, seed=100 + at) for at, one in enumerate([*steps(0), *steps(1), *steps(2, 3)])]
    alone = policy(directory, **keys_of(kind), prefix_mb=0)
    wanted = [alone.act([one], 1.0)[0] for one in contexts]
    model = policy(directory, **keys_of(kind), batch=3)
    assert_same([*at_once(model, contexts[:1]), *at_once(model, contexts[1:])], wanted)


def test_a_short_reply_returns_while_a_long_one_is_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = built(tmp_path)
    short, long = policy(directory).act([SHORT, LONG], 1.0)
    end = short.token_ids[1]
    assert end not in long.token_ids
    model = policy(directory)
    model.model.batch.ends = [end]  # type: ignore[attr-defined]
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(model.act, [LONG], 1.0)
        gate.passes.release()
        while not model.model.batch._held:  # type: ignore[attr-defined]
            time.sleep(0.01)
        quick = threads.submit(model.act, [SHORT], 1.0)
        while len(model.model.batch._waiting) + len(model.model.batch._held) < 2:  # type: ignore[attr-defined]
            time.sleep(0.01)
        gate.passes.release(3)  # one of the long reply alone and two together, or three together
        assert quick.result(60)[0].token_ids == short.token_ids[:2] and not slow.done()
        gate.passes.release(100)
        assert_same(slow.result(60), [long])


def test_requests_that_are_sampled_otherwise_wait_for_those_before_them(tmp_path: Path) -> None:
    directory = built(tmp_path)
    greedy, hot = policy(directory).act([SHORT], 0.0), policy(directory).act([LONG], 1.0)
    model = policy(directory)
    with ThreadPoolExecutor(6) as threads:
        made = [threads.submit(model.act, [(SHORT, LONG)[at % 2]], float(at % 2)) for at in range(6)]
    for at, one in enumerate(made):
        assert_same(one.result(), (greedy, hot)[at % 2])


def test_an_error_of_one_prompt_ends_its_own_call_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = policy(built(tmp_path))
    wanted, inputs = model.act([LONG], 1.0), model.model._inputs  # type: ignore[attr-defined]

    def picky(chats: Any) -> Any:
        if "refused" in str(chats):
            raise ValueError("refused")
        return inputs(chats)

    monkeypatch.setattr(model.model, "_inputs", picky)
    wrong = replace(SHORT, instruction="refused")
    with pytest.raises(ValueError, match="refused"):
        model.act([wrong, LONG, wrong], 1.0)
    assert_same(model.act([LONG], 1.0), wanted)


def test_after_an_error_of_the_model_the_next_call_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = policy(built(tmp_path))
    wanted = model.act([LONG], 1.0)

    def full(*_: Any) -> None:
        raise RuntimeError("the memory is full")

    for place in ("run", "put"):
        with monkeypatch.context() as patched:
            patched.setattr(batching.Slots, place, full)
            with pytest.raises(RuntimeError, match="memory is full"):
                model.act([SHORT, LONG], 1.0)
        assert_same(model.act([LONG], 1.0), wanted)


def test_an_idle_model_is_freed_as_soon_as_nobody_holds_it(tmp_path: Path) -> None:
    model = policy(built(tmp_path))
    wanted = model.act([LONG], 1.0)
    assert_same(model.act([LONG], 1.0), wanted)
    with model.model.batch.paused():  # type: ignore[attr-defined]
        pass
    gone = weakref.ref(model.model.model)  # type: ignore[attr-defined]
    del model
    gc.collect()
    assert gone() is None


def test_a_pause_that_is_interrupted_lets_requests_go_on(tmp_path: Path) -> None:
    model = policy(built(tmp_path))
    wanted = model.act([LONG], 1.0)
    with pytest.raises(KeyboardInterrupt), model.model.batch.paused():  # type: ignore[attr-defined]
        raise KeyboardInterrupt
    assert_same(model.act([LONG], 1.0), wanted)


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_5"])
def test_newer_weights_take_over_in_place(kind: Any, tmp_path: Path) -> None:
    """Captured graphs of a GPU stay valid, as no address changes; nothing of the old weights is reused."""
    model, newer = policy(built(tmp_path, kind), **keys_of(kind)), built(tmp_path, kind, 1)
    places = {name: one.data_ptr() for name, one in model.model.model.state_dict().items()}  # type: ignore[attr-defined]
    contexts = steps(0, 3)
    model.act(contexts, 1.0)
    renewed = model.renewed(newer, "newer")
    assert renewed.act(contexts, 1.0)[0].version == model.version  # it takes over when it begins
    renewed.begin()
    wanted = policy(newer, **keys_of(kind)).act(contexts, 1.0)
    for one in (renewed, model):
        made = one.act(contexts, 1.0)
        assert_same(made, wanted)
        assert {reply.version for reply in made} == {"newer"}
    assert places == {name: one.data_ptr() for name, one in renewed.model.model.state_dict().items()}  # type: ignore[attr-defined]


def test_a_running_reply_ends_under_the_weights_that_began_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, newer = built(tmp_path), built(tmp_path, seed=1)
    (old,), (new,) = policy(directory).act([LONG], 1.0), policy(newer).act([SHORT], 1.0)
    model = policy(directory)
    renewed, gate = model.renewed(newer, "newer"), Gate(monkeypatch)
    with ThreadPoolExecutor(3) as threads:
        running = threads.submit(model.act, [LONG], 1.0)
        while not model.model.batch._held:  # type: ignore[attr-defined]
            time.sleep(0.01)
        begun = threads.submit(renewed.begin)
        while not model.model.batch._paused:  # type: ignore[attr-defined]
            time.sleep(0.01)
        waiting = threads.submit(model.act, [SHORT], 1.0)
        time.sleep(0.1)
        assert not begun.done() and not waiting.done()
        gate.passes.release(200)
        begun.result(60)
        assert_same(running.result(60), [old])
        assert_same(waiting.result(60), [new])
    assert running.result()[0].version == model.version and waiting.result()[0].version == "newer"


def changed(directory: Path, name: str, **keys: Any) -> None:
    """Changes keys of a JSON file of a model directory."""
    content = json.loads((directory / name).read_text())
    (directory / name).write_text(json.dumps(content | keys))


@pytest.mark.parametrize("fault", ["shape", "missing", "tied", "config", "template", "ends"])
def test_weights_of_another_model_are_refused_and_the_old_ones_go_on(
    fault: str, tmp_path: Path, sentence: Sentences
) -> None:
    model, other = policy(built(tmp_path)), built(tmp_path, seed=1, **({"hidden": 128} if fault == "shape" else {}))
    weights, text = load_file(other / "model.safetensors"), json.loads((other / "config.json").read_text())
    if fault == "missing":
        weights.pop(min(name for name in weights if name.endswith("q_proj.weight")))
    if fault == "tied":
        weights.pop("lm_head.weight")
        both = {"tie_word_embeddings": True, "text_config": text["text_config"] | {"tie_word_embeddings": True}}
        changed(other, "config.json", **both)
    if fault == "config":
        rope = text["text_config"]["rope_parameters"] | {"rope_theta": 100.0}
        changed(other, "config.json", text_config=text["text_config"] | {"rope_parameters": rope})
    if fault == "template":
        (other / "chat_template.jinja").write_text("{{ messages }}")
    if fault == "ends":
        changed(other, "generation_config.json", eos_token_id=5)
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    wanted = model.act([LONG], 1.0)
    with sentence.raises(CheckpointError, str(other)):
        model.renewed(other, "other").begin()
    assert_same(model.act([LONG], 1.0), wanted)


def test_weights_that_are_loaded_in_part_answer_nothing_until_whole_ones_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, newer = policy(built(tmp_path)), built(tmp_path, seed=1)

    def half(*_: Any) -> None:
        raise RuntimeError("the device is lost")

    with monkeypatch.context() as patched:
        patched.setattr(local, "replace_weights", half)
        with pytest.raises(RuntimeError, match="device is lost"):
            model.renewed(newer, "newer").begin()
    with pytest.raises(CheckpointError, match="only in part"):
        model.act([LONG], 1.0)
    renewed = model.renewed(newer, "newer")
    renewed.begin()
    assert_same(renewed.act([LONG], 1.0), policy(newer).act([LONG], 1.0))


def test_the_weights_that_begin_last_are_those_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, newer = built(tmp_path), built(tmp_path, seed=1)
    model, read, reads = policy(directory), local._read, threading.Event()

    def slow(place: Path) -> Any:
        if place == newer:
            reads.set()
            time.sleep(0.3)
        return read(place)

    monkeypatch.setattr(local, "_read", slow)
    first = model.renewed(newer, "first")
    second = first.renewed(directory, "second")
    with ThreadPoolExecutor(1) as threads:
        begun = threads.submit(first.begin)
        assert reads.wait(60)
        second.begin()
        begun.result(60)
    assert model.act([LONG], 1.0)[0].version == "second"


def test_slots_for_one_long_prompt_are_not_kept_for_short_ones(tmp_path: Path) -> None:
    model = policy(built(tmp_path))
    model.act([replace(LONG, instruction="Click. " * 600)], 1.0)
    long = model.model.batch.slots.room  # type: ignore[attr-defined]
    model.act([LONG], 1.0)
    assert model.model.batch.slots.room < long / 4  # type: ignore[attr-defined]
