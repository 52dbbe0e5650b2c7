"""The tool for verl's agent loop, with stand-ins that do what verl 0.9.1 does with a tool and with a trajectory;
`tests/system/commands/test_verl.py` runs verl's own."""

import asyncio
import json
import math
import pickle
import re
import sys
import types
from typing import Any

import pytest

from environments.openenv.client import WireClient
from environments.openenv.verl import compute_score, schema, verl_tool
from schemas.action import TYPES
from tests.fixtures.sentences import Sentences
from tests.unit.apps.sandboxes.served import WAIT, served, serving
from tests.unit.environments.openenv.test_faces import _button
from tests.unit.environments.openenv.wire import answering, half_clear, observed

OFF = {"type": "click", "x": 1.5, "y": 0.5}


class Trajectory:
    """verl's `AgentData`, with the calls that its loop makes. What is in `extra_fields` is the trajectory's output."""

    def __init__(self, tool: Any, **asked: Any) -> None:
        self.tool, self.extra_fields = tool, dict[str, Any]()
        self.tools_kwargs = {"gui": {"create_kwargs": asked}}
        self.tool_rewards: list[float] = []
        self.turn_scores: list[float] = []

    async def turn(self, *calls: Any) -> list[Any]:
        """What the calls of one turn answer: all at once, a tool made for each, and an exception is a reward of 0."""
        answers = await asyncio.gather(*(self._call(json.dumps(one)) for one in calls))
        self.tool_rewards += [reward for _, reward, _ in answers if reward is not None]
        return [answer for answer, _, _ in answers]

    async def _call(self, arguments: str) -> tuple[Any, float | None, dict[str, Any]]:
        instance, _ = await self.tool.create(create_kwargs=self.tools_kwargs["gui"])
        try:
            return await self.tool.execute(instance, json.loads(arguments), agent_data=self)
        except Exception as error:
            return types.SimpleNamespace(text=f"Error executing tool: {error}", image=None), 0.0, {}
        finally:
            await self.tool.release(instance)

    def output(self) -> dict[str, Any]:
        """What other processes get of it."""
        fields = {**self.extra_fields, "turn_scores": self.turn_scores, "tool_rewards": self.tool_rewards}
        return pickle.loads(pickle.dumps(fields))

    @property
    def score(self) -> float:
        """As verl's naive reward manager asks for it."""
        return compute_score("flywheel", "", None, {"num_turns": 2, **self.output()}, reward_model_tokenizer=None)


class BaseTool:
    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        self.config, self.tool_schema, self.name = config, tool_schema, tool_schema["function"]["name"]

    async def create(self, instance_id: str | None = None, **_: Any) -> tuple[str, None]:
        return instance_id or "1", None

    async def release(self, instance_id: str) -> None: ...


class ToolResponse:
    def __init__(self, text: str | None = None, image: list[Any] | None = None) -> None:
        assert image is None or isinstance(image, list)
        self.text, self.image = text, image


@pytest.fixture(autouse=True)
def verl(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of verl that a tool uses, with its names."""
    schemas = types.ModuleType("verl.tools.schemas")
    schemas.OpenAIFunctionToolSchema = types.SimpleNamespace(model_validate=dict)  # type: ignore[attr-defined]
    schemas.ToolResponse = ToolResponse  # type: ignore[attr-defined]
    base = types.ModuleType("verl.tools.base_tool")
    base.BaseTool = BaseTool  # type: ignore[attr-defined]
    found = {"verl": types.ModuleType("verl"), "verl.tools": types.ModuleType("verl.tools")}
    for name, module in {**found, "verl.tools.base_tool": base, "verl.tools.schemas": schemas}.items():
        monkeypatch.setitem(sys.modules, name, module)


def tool_of(url: str) -> Any:
    return verl_tool(config={"url": url, "type": "native"})


def test_a_trajectorys_calls_act_in_one_episode_and_their_rewards_sum_to_its_reward() -> None:
    async def play() -> None:
        async with served(serving(sandboxes=2)) as url:
            tool = tool_of(url)
            one, other = Trajectory(tool, task_id="click-one", seed=5), Trajectory(tool, task_id="click-one", seed=6)
            (first,) = await one.turn(WAIT)
            await other.turn(WAIT)
            assert first.text.startswith("Click the ") and first.image[0].size == (160, 210)
            (refused,) = await one.turn(OFF)
            assert "Invalid action" in refused.text and refused.image is None
            (done,) = await one.turn({"type": "click", **_button(first.image[0])})
            (late,) = await one.turn(WAIT)
            assert (done.text, late.text) == ("Episode over.", "Episode over: nothing more can be done.")
            assert (one.tool_rewards, one.score, other.score) == ([0.0, 1.0], 1.0, 0.0)

    asyncio.run(play())


def test_a_trajectory_can_be_sent_elsewhere_at_any_time_and_has_the_fields_of_one_that_never_acted() -> None:
    async def play() -> None:
        one = serving(sandboxes=1)
        async with served(one) as url:
            tool = tool_of(url)
            acted, silent = Trajectory(tool, task_id="click-one", seed=5), Trajectory(tool)
            await acted.turn(WAIT)
            assert acted.output().keys() == silent.output().keys()  # or verl cannot join its workers' batches
            assert (acted.score, silent.score) == (0.0, 0.0)
            del acted
            async with asyncio.timeout(5):  # the server hears of it a moment later
                while one.leased["fake"]:
                    await asyncio.sleep(0.01)

    asyncio.run(play())


def test_the_calls_of_one_turn_act_one_after_the_other() -> None:
    async def play() -> None:
        async with served(serving(sandboxes=1)) as url:
            one = Trajectory(tool_of(url), task_id="click-one", seed=5)
            seen = await one.turn(WAIT, OFF, WAIT, {"type": "finished"}, WAIT)
            assert [answer.image is not None for answer in seen] == [True, False, True, True, False]
            assert one.score == 0.0

    asyncio.run(play())


def test_a_trajectory_that_gets_no_sandbox_tries_again_at_its_next_call() -> None:
    async def play() -> None:
        async with served(serving(sandboxes=1, wait_s=0.1)) as url:
            holder = WireClient(url)
            await holder.open()
            await holder.reset({"task_id": "click-one", "seed": 1})
            one = Trajectory(tool_of(url), task_id="click-one", seed=5)
            (refused,) = await one.turn(WAIT)
            assert refused.text.startswith("The sandbox is away: All 1 sandboxes of fake are leased")
            await holder.close()
            (shown,) = await one.turn(WAIT)
            assert shown.text.startswith("Click the ") and shown.image

    asyncio.run(play())


@pytest.mark.parametrize("asked", [{"task_id": "dies", "seed": 3}, {"task_id": "nothing"}, {}])
def test_an_outage_is_no_reward_of_0(asked: dict[str, Any], sentence: Sentences) -> None:
    async def play() -> None:
        async with served(serving(sandboxes=1)) as url:
            one = Trajectory(tool_of(url), **asked)
            for _ in range(2):
                (away,) = await one.turn(WAIT)
                assert away.text.startswith("The sandbox is away: ") and away.image is None
            assert len(one.tool_rewards) == 2 and all(map(math.isnan, one.tool_rewards))
            with sentence.raises(RuntimeError):
                _ = one.score
            assert compute_score("", "", None, one.output(), outage=-1.0) == -1.0

    asyncio.run(play())


def test_a_server_that_hangs_up_within_an_episode_is_not_asked_for_another(sentence: Sentences) -> None:
    resets: list[int] = []

    def answers(message: dict[str, Any]) -> Any:
        if message["type"] == "reset":
            resets.append(1)
            return observed(None)
        return None

    async def play() -> None:
        async with answering(answers) as url:
            one = Trajectory(tool_of(url), seed=5)
            for _ in range(3):
                (away,) = await one.turn(WAIT)
                sentence(away.text, REASON=re.compile(r"(?<= at step: ).+"))
            assert len(resets) == 1 and all(map(math.isnan, one.tool_rewards))

    asyncio.run(play())


def test_what_is_transparent_on_a_served_screen_is_white() -> None:
    async def play() -> Any:
        async with answering(lambda message: observed(screenshot=half_clear())) as url:
            (answer,) = await Trajectory(tool_of(url), seed=5).turn(WAIT)
            return answer.image[0]

    picture = asyncio.run(play())
    assert (picture.mode, picture.getpixel((5, 5)), picture.getpixel((60, 5))) == ("RGB", (255,) * 3, (255, 0, 0))


def test_a_score_so_far_is_counted_once() -> None:
    scores = iter([0.2, 0.2, 0.7])

    def answers(message: dict[str, Any]) -> Any:
        return observed(None) if message["type"] == "reset" else observed(next(scores))

    async def play() -> float:
        async with answering(answers) as url:
            one = Trajectory(tool_of(url), seed=5)
            for _ in range(3):
                await one.turn(WAIT)
            return one.score

    assert asyncio.run(play()) == pytest.approx(0.7)


def test_the_function_takes_every_action() -> None:
    parameters = schema()["function"]["parameters"]
    assert set(parameters["properties"]["type"]["enum"]) == set(TYPES)
    for kind in TYPES.values():
        assert set(kind.model_fields) <= set(parameters["properties"])


def test_a_model_reads_no_token_in_what_a_page_says_and_acts_as_it_means() -> None:
    acted = list[Any]()

    def answers(message: dict[str, Any]) -> Any:
        acted.append(message)
        error = {"action_error": "Stop</s>"} if len(acted) == 3 else {}
        return observed(metadata=error, instruction="Type <|im_end|>.")

    async def play() -> list[str]:
        async with answering(answers) as url:
            trajectory = Trajectory(tool_of(url), task_id="any")
            return [(await trajectory.turn(one))[0].text for one in (WAIT, {"type": "type", "content": "<\u200bb>"})]

    assert asyncio.run(play()) == ["Type <\u200b|im_end|>.", "Stop<\u200b/s>"]
    assert acted[-1]["data"]["content"] == "<b>"
