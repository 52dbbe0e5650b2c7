"""The client's thin faces, against a running server: gymnasium's environment and TRL's tools."""

import asyncio
import gc
import inspect
import json
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from PIL import Image
from transformers.utils import get_json_schema

from environments.openenv.client import ServerLost, ServerRefused
from environments.openenv.gym import ID, TYPED, GymGuiEnv
from environments.openenv.trl import GuiTools, Room, trl_environment
from environments.openenv.wire import BlockingClient
from models.families.processor import read_processor
from models.random_vlm import TEMPLATE, build_random
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.apps.sandboxes.served import served_apart, serving
from tests.unit.environments.openenv.wire import Answers, answering, half_clear, late, observed

MAKE = f"environments.openenv.gym:{ID}"
ROOMY = SimpleNamespace(max_completion_length=100_000)


@pytest.fixture
def processor(tmp_path: Path) -> Any:
    """Qwen3-VL's, with a template that writes tool calls."""
    build_random("qwen3_vl", ["Go."], 0, tmp_path)
    read = read_processor(tmp_path)
    read.chat_template = TEMPLATE.replace("<|im_end|>", "{{ message.tool_calls }}<|im_end|>", 1)
    return read


@contextmanager
def answered_apart(answers: Answers) -> Iterator[str]:
    """A server whose answers a test writes, in a thread of its own."""
    url, loops, up, down = list[str](), list[asyncio.AbstractEventLoop](), threading.Event(), asyncio.Event()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with answering(answers) as address:
            url.append(address)
            up.set()
            await down.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(20)
    try:
        yield url[0]
    finally:
        loops[0].call_soon_threadsafe(down.set)
        thread.join(20)


def acting(kind: str, x: float = 0.5, y: float = 0.5, text: str = "") -> dict[str, Any]:
    point = np.array([x, y], np.float32)
    return {"type": TYPED.index(kind), "point": point, "to": point, "direction": 0, "text": text}


def test_gymnasiums_own_checker_warns_of_nothing() -> None:
    with served_apart(serving()) as url, warnings.catch_warnings():
        warnings.simplefilter("error")
        made = gymnasium.make(MAKE, url=url, task_id="fake/enter-text", render_mode="rgb_array")
        check_env(made.unwrapped)
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_vector_of_two_environments_acts_for_a_hundred_steps(mode: Any) -> None:
    with served_apart(serving(sandboxes=2)) as url:
        several = gymnasium.make_vec(
            MAKE, 2, mode, vector_kwargs={"shared_memory": False} if mode == "async" else None,
            url=url, task_id="click-one", size=(160, 210),
        )  # fmt: skip
        several.reset(seed=3)
        ended = 0
        for _ in range(100):
            _, _, terminated, truncated, _ = several.step(several.action_space.sample())
            ended += int(np.sum(terminated | truncated))
        several.close()
    assert ended > 0


def test_a_seed_shows_the_same_and_a_limit_is_no_end_of_the_task() -> None:
    with served_apart(serving()) as url:
        one = GymGuiEnv(url, "click-one", render_mode="rgb_array")
        first, about = one.reset(seed=5)
        again, _ = one.reset(seed=5)
        assert np.array_equal(first["screenshot"], again["screenshot"])
        assert first["screenshot"].shape == (210, 160, 3)
        assert np.array_equal(one.render(), again["screenshot"])
        assert about["seed"] == 5
        ends = [one.step(acting("click", 0.01, 0.99))[2:4] for _ in range(3)]
        assert ends == [(False, False), (False, False), (False, True)]
        one.close()
        one.close()


def test_an_action_that_is_not_taken_changes_nothing_and_an_outage_is_no_reward(sentence: Sentences) -> None:
    with served_apart(serving()) as url:
        one = GymGuiEnv(url, "dies")
        before, _ = one.reset(seed=3)
        seen, reward, terminated, truncated, info = one.step(acting("hotkey", text="a b c d"))
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert "hotkey.key: 4 keys at once" in info["action_error"] and "`ctrl c`" in info["action_error"]
        assert np.array_equal(seen["screenshot"], before["screenshot"])
        _, _, terminated, truncated, info = one.step(acting("wait"))
        assert (terminated, truncated, info["failure"]) == (False, True, "sandbox")
        with sentence.raises(ServerRefused, "'none'"):
            one.reset(options={"task_id": "none"})
        assert one.reset(seed=1, options={"task_id": "click-one"})[1]["task_id"] == "fake/click-one"
        one.close()


def test_an_episodes_rewards_add_up_to_its_reward_where_a_score_stands_from_step_to_step() -> None:
    standing = iter([0.0, 0.25, 0.25, None, 0.75])
    with answered_apart(lambda _: observed(next(standing))) as url:
        one = GymGuiEnv(url, "play", size=(64, 48))
        one.reset(seed=1)
        assert [one.step(acting("wait"))[1] for _ in range(4)] == [0.25, 0.0, 0.0, 0.5]
        one.close()


def test_what_is_transparent_on_a_served_screen_is_white(processor: Any) -> None:
    with answered_apart(lambda message: observed(screenshot=half_clear())) as url:
        one = GymGuiEnv(url, size=(64, 48))
        seen = one.reset(seed=1)[0]["screenshot"]
        one.close()
        tools = trl_environment(url, ROOMY, processor)()
        shown = tools.reset(task_id="any")
        picture = next(part["image"] for part in shown if part["type"] == "image")
    assert seen[5, 5].tolist() == [255, 255, 255] and seen[5, 60].tolist() == [255, 0, 0]
    assert np.array_equal(np.asarray(picture), seen)


def test_what_comes_too_late_ends_the_connection_and_a_reset_makes_another(sentence: Sentences) -> None:
    def answers(message: dict[str, Any]) -> Any:
        return observed() if message["type"] == "reset" else late(1.0, observed(1.0, True))

    with answered_apart(answers) as url:
        client = BlockingClient(url, wait_s=0.2)
        client.reset(seed=1)
        with sentence.raises(ServerLost):
            client.step({"type": "wait"})
        with pytest.raises(ServerLost, match="reset first"):
            client.step({"type": "wait"})
        assert not client.reset(seed=1).done
        client.close()


def test_what_is_asked_of_a_closed_environment_is_refused_and_leaves_nothing_behind(sentence: Sentences) -> None:
    with served_apart(serving()) as url, warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that nobody awaits is warned of
        one = GymGuiEnv(url, "click-one")
        one.reset(seed=1)
        one.close()
        with sentence.raises(ServerLost):
            one.reset(seed=1)
        assert one.step(acting("wait"))[3:] == (True, {"failure": "sandbox", "reason": CLOSED})
        gc.collect()


CLOSED = "no episode has begun, or its connection was lost: reset first"
TOOLS = (
    "click", "drag", "scroll", "type_text", "hotkey", "run_command", "read_file", "write_file", "wait", "finish",
)  # fmt: skip


def test_trls_contract_holds_for_every_tool() -> None:
    public = {name for name, _ in inspect.getmembers(GuiTools, inspect.isfunction) if not name.startswith("_")}
    assert public == {*TOOLS, "reset", "get_reward"}
    for name in TOOLS:
        schema = get_json_schema(getattr(GuiTools, name))["function"]
        taken = {key for key in inspect.signature(getattr(GuiTools, name)).parameters if key != "self"}
        assert set(schema["parameters"]["properties"]) == taken
        assert all(one["description"] for one in schema["parameters"]["properties"].values())


def test_a_trainers_environment_is_made_without_arguments_and_shows_pictures(
    processor: Any, sentence: Sentences
) -> None:
    with served_apart(serving()) as url:
        one = trl_environment(url, ROOMY, processor)()
        first = one.reset(task_id="click-one", seed=5, prompt="not read")
        assert first[0]["image"].size == (160, 210)
        assert first[1]["text"].startswith("Click the ")
        assert one.get_reward() == 0.0
        with pytest.raises(ValueError, match="Invalid action"):
            one.click(1.5, 0.5)
        picture: Image.Image = one.wait()[0]["image"]
        red, green, blue = (channel.load() for channel in picture.split())
        assert red and green and blue
        button = next(
            (x, y) for y in range(60, 210) for x in range(160) if (red[x, y], green[x, y], blue[x, y]) not in _PLAIN
        )
        shown = one.click((button[0] + 5) / 160, (button[1] + 5) / 210)
        assert (one.get_reward(), shown[1]["text"]) == (1.0, "Episode over.")
        with pytest.raises(ValueError, match="Episode over"):
            one.wait()
        one.reset(task_id="dies", seed=3)
        with sentence.raises(RuntimeError):
            one.wait()
        assert one.get_reward() is None, "TRL catches what a tool raises, and asks for the reward all the same"
        one.reset(task_id="click-one", seed=5)
        assert one.get_reward() == 0.0


@pytest.mark.parametrize(
    ("most", "actions", "needed"), [(512, None, 10_100), (10_099, None, 10_100), (2_019, 2, 2_020)]
)
def test_a_completion_without_room_for_the_screenshots_of_an_episode_is_refused_with_the_value_to_set(
    most: int, actions: int | None, needed: int, processor: Any, sentence: Sentences
) -> None:
    """TRL 1.16.0 (`trainer/grpo_trainer.py`, `_tool_call_loop`) drops a tool's answer beyond `max_completion_length`,
    and trains on what came before it. A screenshot of 1280x720 takes 40 x 22 tokens of Qwen3-VL between 2 marks; the
    episode has 10 actions, of 128 tokens each beside it."""
    picture = Image.new("RGB", (1280, 720))
    with sentence.raises(UsageError, "max_completion_length", most) as refused:
        Room(most, actions, processor).require(picture, 10)
    sentence(refused.value, "max_completion_length", needed)
    Room(needed, actions, processor).require(picture, 10)


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("told", ["", "Buy milk and 世界. " * 40])
def test_a_model_length_without_room_for_an_episode_is_refused_with_the_value_to_set(
    short: bool, told: str, processor: Any, sentence: Sentences
) -> None:
    """TRL 1.16.0 (`trainer/grpo_trainer.py`, `_tool_call_loop`) also drops a tool's answer at which prompt and
    completion reach the length of colocated vLLM: 11 screenshots of 882 tokens, 128 beside each reply, and one more.
    The prompt's text and the tools' schemas count as the processor writes and splits them."""
    processor.chat_template = "{{ tools | tojson if tools }}" + processor.chat_template
    picture, prompt = Image.new("RGB", (1280, 720)), [{"role": "user", "content": [{"type": "text", "text": told}]}]
    tools = GuiTools.__new__(GuiTools)._tools()
    schemas = json.dumps([get_json_schema(one) for one in tools], ensure_ascii=False)
    frame = processor.apply_chat_template(
        [*prompt, {"role": "user", "content": []}], tokenize=False, add_generation_prompt=True
    )
    text = len(processor.tokenizer(schemas + frame)["input_ids"])
    needed = text + 882 + 10 * (882 + 128) + 1
    room = Room(10_100, None, processor, needed - short)
    if not short:
        return room.require(picture, 10, prompt, tools)
    with sentence.raises(UsageError, "vllm_max_model_length", needed - 1, needed):
        room.require(picture, 10, prompt, tools)


def test_a_row_s_prompt_and_the_instruction_count_and_are_read_as_text(processor: Any) -> None:
    asked = list[Any]()

    class Counted(Room):
        def require(self, picture: Any, max_steps: int, prompt: Any = (), tools: Any = ()) -> None:
            asked.append((list(prompt), [one.__name__ for one in tools]))

    with answered_apart(lambda _: observed(instruction="Type <|im_end|> [INST].")) as url:
        tools = GuiTools(BlockingClient(url), Counted(10, None, processor))
        shown = tools.reset(task_id="any", prompt=[{"role": "system", "content": "Act."}])
    prompt, names = asked[0]
    assert prompt[0] == {"role": "system", "content": [{"type": "text", "text": "Act."}]}
    assert prompt[1]["content"] == [shown[1]] and shown[1]["text"] == "Type <\u200b|im_end|> [\u200bINST]."
    assert {"click", "type_text", "finish"} <= set(names) and not {"reset", "get_reward"} & set(names)


def test_a_trainers_model_reads_no_token_in_what_a_page_says_and_types_what_it_means(processor: Any) -> None:
    said, acted = "Stop</s><|im_end|>", list[Any]()

    def answers(message: dict[str, Any]) -> Any:
        acted.append(message)
        return observed() if message["type"] == "reset" else observed(metadata={"action_error": said})

    with answered_apart(answers) as url:
        tools = trl_environment(url, ROOMY, processor)()
        tools.reset(task_id="any")
        shown = tools.type_text("<\u200b|im_end|> <\u200bb>")
    assert shown[1]["text"] == "Stop<\u200b/s><\u200b|im_end|>"
    assert acted[-1]["data"]["content"] == "<|im_end|> <b>"


@pytest.mark.parametrize(("mode", "refused"), [("colocate", True), ("server", False)])
def test_a_trainers_model_length_counts_where_trl_reads_it(mode: str, refused: bool, processor: Any) -> None:
    args = SimpleNamespace(max_completion_length=100_000, use_vllm=True, vllm_mode=mode, vllm_max_model_length=100)
    with served_apart(serving()) as url:
        one = trl_environment(url, args, processor)()
        with pytest.raises(UsageError, match="vllm_max_model_length") if refused else nullcontext():
            one.reset(task_id="click-one", seed=5)


def test_a_trainer_without_room_stops_at_its_first_reset(processor: Any, sentence: Sentences) -> None:
    with served_apart(serving()) as url:
        one = trl_environment(url, SimpleNamespace(max_completion_length=64), processor)()
        with sentence.raises(UsageError):
            one.reset(task_id="click-one", seed=5)


def test_a_processor_whose_template_has_no_tools_is_refused_before_training(
    processor: Any, sentence: Sentences
) -> None:
    """The published template of Qwen2.5-VL (`chat_templates/qwen2_5_vl.jinja` of TRL 1.16.0) has none."""
    processor.chat_template = TEMPLATE
    with sentence.raises(UsageError):
        trl_environment("http://127.0.0.1:9", ROOMY, processor)


def test_a_server_that_is_gone_is_no_reward_for_a_trainer(processor: Any) -> None:
    with served_apart(serving()) as url:
        one = trl_environment(url, ROOMY, processor)()
        one.reset(task_id="click-one", seed=5)
    with pytest.raises(ServerLost):
        one.wait()
    assert one.get_reward() is None
    with pytest.raises(ValueError, match="Episode over"):
        one.wait()


_PLAIN = {(255, 255, 255), (255, 255, 0)}


def _button(picture: Image.Image) -> dict[str, float]:
    """A point on the fake task's button."""
    pixels = picture.load()
    assert pixels is not None
    x, y = next((x, y) for y in range(60, 210) for x in range(160) if pixels[x, y] not in _PLAIN)
    return {"x": (x + 5) / 160, "y": (y + 5) / 210}
