"""Another's environment on OpenEnv's wire: what is sent, what is read, and whose fault is what goes wrong."""

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from environments.openenv.mapping import decode, picture_of, values_of
from environments.openenv.sandbox import OpenEnvReward
from environments.pool import SandboxPool
from models.completion import Completion
from models.explorer import PageExplorer
from models.policy import Context, Policy
from rollout.actor import Actor
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas import action as act
from schemas.context import ContextRule
from schemas.failure import FlywheelError, TrajectoryFailure
from schemas.observation import Outcome
from tests.fixtures.sentences import Sentences
from tests.unit.environments.openenv.wire import (
    Answers,
    answering,
    environment,
    error,
    late,
    nonsense,
    observed,
    picture,
)

REWARD = OpenEnvReward()


class Scripted(Policy):
    """Does one after the other, and then nothing."""

    version, dialect = "p", "box_v1"

    def __init__(self, actions: Sequence[act.Action]) -> None:
        self.actions = list(actions)

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        return [Completion("", actions=(self.actions.pop(0) if self.actions else act.Wait(),)) for _ in contexts]


def rolled(answers: Answers, performed: Sequence[act.Action], seed: int = 7, **keys: Any) -> FinishedTrajectory:
    async def run() -> FinishedTrajectory:
        async with answering(answers) as url:
            theirs = environment(url, **keys)
            planned = PlannedTrajectory("lake", "run", 0, theirs.task("press", max_steps=4), seed, "policy", "p")
            with Actor(Scripted(performed)) as actor:
                async with SandboxPool([theirs]) as pool:
                    return await roll_out(pool, planned, [actor], record_elements=False, rule=ContextRule(1))

    return asyncio.run(run())


CLICK = act.Click(x=0.5, y=0.25)


def test_a_trajectory_is_played_on_the_wire_with_its_seed_its_actions_and_its_reward() -> None:
    sent: list[dict[str, Any]] = []

    def answers(message: dict[str, Any]) -> dict[str, Any]:
        sent.append(message)
        return observed(None) if message["type"] == "reset" else observed(1.0, True)

    tasks = {"press": {"instruction": "Press {}.", "reset": {"task_id": "p-1"}}}
    record = rolled(answers, [CLICK], tasks=tasks, reset={"quiet": True})
    assert sent == [
        {"type": "reset", "data": {"quiet": True, "task_id": "p-1", "seed": 7}},
        {"type": "step", "data": {"type": "click", "x": 0.5, "y": 0.25}},
    ]
    one = record.trajectory
    assert (one.success, one.reward, one.termination, one.instruction) == (True, 1.0, "done", "Press it.")


def test_screens_of_changing_size_are_recorded_each_with_its_own() -> None:
    sizes = iter([(64, 48), (300, 200), (20, 90), (64, 48), (64, 48)])
    record = rolled(lambda _: observed(screenshot=picture(*next(sizes))), [CLICK] * 4)
    assert [(step.screen_width, step.screen_height) for step in record.steps[:3]] == [(64, 48), (300, 200), (20, 90)]
    assert record.trajectory.termination == "max_steps"


def test_an_action_error_that_the_environment_reports_is_kept_and_does_not_end_the_trajectory() -> None:
    errors = iter(["", "there is no button", "", "", ""])
    record = rolled(lambda _: observed(last_error=next(errors)), [CLICK] * 4, action_error="last_error")
    assert [step.action_error for step in record.steps] == ["there is no button", None, None, None]
    assert (record.trajectory.termination, record.trajectory.failure_boundary) == ("max_steps", None)


def test_a_limit_of_the_environments_own_ends_the_trajectory_and_is_no_verdict() -> None:
    def answers(message: dict[str, Any]) -> dict[str, Any]:
        return observed() if message["type"] == "reset" else observed(1.0, True, {"truncated": True})

    one = rolled(answers, [CLICK]).trajectory
    assert (one.termination, one.success, one.n_steps) == ("truncated", False, 1)


@pytest.mark.parametrize("last", [act.Finished(content="42"), act.CallUser()])
def test_how_the_policy_ends_it_reaches_an_environment_that_scores_it(last: act.Action) -> None:
    def answers(message: dict[str, Any]) -> dict[str, Any]:
        if message["type"] == "reset":
            return observed()
        return observed(float(message["data"] == last.model_dump()), True)

    one = rolled(answers, [last]).trajectory
    assert (one.success, one.termination) == (True, "done")


def test_an_environment_that_takes_no_word_of_the_end_is_sent_none() -> None:
    sent: list[str] = []

    def answers(message: dict[str, Any]) -> dict[str, Any]:
        sent.append(message["type"])
        return observed()

    actions = {"click": {"at": ["{x_px}", "{y_px}"]}}
    assert rolled(answers, [act.Finished()], actions=actions).trajectory.termination == "finished"
    assert sent == ["reset"]


def test_actions_are_written_as_the_config_says() -> None:
    sent: list[dict[str, Any]] = []

    def answers(message: dict[str, Any]) -> dict[str, Any]:
        sent.append(message.get("data", {}))
        return observed()

    actions = {
        "click": {"action_str": "mouse_click({x_px}, {y_px})"},
        "type": {"action_str": "keyboard_type({content!r})"},
        "scroll": {"kind": "wheel", "dx": "{across}", "dy": "{down}"},
        "hotkey": {"keys": "{keys}"},
    }
    given = [act.Click(x=1.0, y=0.5), act.Type(content="it's {x}\n"), act.Scroll(x=0, y=0, direction="up")]
    rolled(answers, [*given, act.Hotkey(key="ctrl c")], actions=actions)
    assert sent[1:] == [
        {"action_str": "mouse_click(63, 24)"},
        {"action_str": 'keyboard_type("it\'s {x}\\n")'},
        {"kind": "wheel", "dx": 0, "dy": -1},
        {"keys": ["ctrl", "c"]},
    ]


SEARCH = act.UseTool(name="search", arguments={"query": "it's {x}", "most": 3})


def test_a_call_of_a_tool_is_sent_in_the_servers_form_and_may_leave_the_screen() -> None:
    """OpenEnv's `CallToolAction`, whose observation has no screenshot."""
    sent: list[dict[str, Any]] = []

    def answers(message: dict[str, Any]) -> dict[str, Any]:
        sent.append(message.get("data", {}))
        if message["type"] == "reset":
            return observed()
        if not message["data"]:  # a wait
            return observed()
        failed = {"error_type": "tool_not_found", "message": "no such tool"} if len(sent) > 2 else None
        observation = {"tool_name": "search", "result": ["page 1"], "error": failed}
        return {"type": "observation", "data": {"observation": observation, "reward": None, "done": False}}

    actions = {"wait": {}, "tool": {"type": "call_tool", "tool_name": "{name}", "arguments": "{arguments}"}}
    record = rolled(answers, [SEARCH, SEARCH], actions=actions, action_error="error.message")
    call = {"type": "call_tool", "tool_name": "search", "arguments": {"query": "it's {x}", "most": 3}}
    assert sent[1:3] == [call, call]
    assert [step.action_error for step in record.steps[:2]] == [None, "no such tool"]
    assert len({step.screenshot for step in record.steps}) == 1


def test_a_tool_that_an_environment_does_not_have_is_refused_and_the_trajectory_goes_on() -> None:
    record = rolled(lambda _: observed(), [SEARCH, CLICK], actions={"click": {}, "wait": {}})
    refused, *others = [step.action_error for step in record.steps]
    assert refused == "there is no tool 'search': the environment takes click, wait" and not any(others)
    assert (record.trajectory.failure_boundary, record.trajectory.termination) == (None, "max_steps")


def test_an_action_that_the_config_has_no_writing_for_is_the_policys_failure() -> None:
    one = rolled(lambda _: observed(), [act.PressHome()], actions={"click": {}}).trajectory
    assert one.failure_boundary == "action"
    assert one.failure_reason == (
        "this environment cannot perform press_home: `environments.NAME.actions` has no message for it"
    )


def test_the_explorer_does_only_what_the_config_has_a_writing_for() -> None:
    async def run() -> list[FinishedTrajectory]:
        async with answering(lambda _: observed()) as url:
            theirs = environment(url, actions={"click": {"at": "{x_px}"}, "finished": {}})
            with Actor(PageExplorer()) as actor:
                async with SandboxPool([theirs]) as pool:
                    task = theirs.task("press", max_steps=8)
                    planned = [PlannedTrajectory("lake", "run", 0, task, seed, "explorer", "e") for seed in range(6)]
                    return [await roll_out(pool, one, [actor], False, ContextRule(1)) for one in planned]

    ran = asyncio.run(run())
    assert {step.action_type for one in ran for step in one.steps} == {"click"}
    assert {(one.trajectory.termination, one.trajectory.n_steps) for one in ran} == {("max_steps", 8)}


def damaged(png: str) -> str:
    content = bytearray(base64.b64decode(png))
    content[-20] ^= 1
    return base64.b64encode(content).decode()


BROKEN: dict[str, tuple[Any, str, str]] = {
    "text that is no JSON": ("mumble", "sandbox", "the answer to step is not JSON"),
    "a list": ("[1]", "sandbox", "the answer to step is not an OpenEnv message"),
    "bytes": (b"\x00\xff", "sandbox", "the answer to step is not JSON"),
    "another message": ({"type": "state", "data": {}}, "sandbox", "is a 'state', and not a 'observation'"),
    "no observation": ({"type": "observation", "data": {}}, "sandbox", "has no `observation`"),
    "no picture": (observed(screenshot=None), "sandbox", "`screenshot` is NoneType, not an image"),
    "half a picture": (observed(screenshot=picture()[:80]), "sandbox", "is a PNG that is cut short"),
    "a picture with a wrong byte": (observed(screenshot=damaged(picture())), "sandbox", "is a broken PNG"),
    "a last picture of nonsense": (observed(1.0, True, screenshot=nonsense()), "sandbox", "is a broken PNG"),
    "too large a picture": (observed(screenshot=nonsense(9000, 9000)), "sandbox", "a picture of 9000 x 9000 pixels"),
    "text for a picture": (observed(screenshot="a red button"), "sandbox", "is text, but not base64"),
    "rows that differ": (observed(screenshot=[[[1, 2, 3]], []]), "sandbox", "`screenshot` is a list"),
    "a reward of 7": (observed(7.0), "verifier", "a reward of 7, and rewards are in [-1, 1]"),
    "a reward in words": (observed("good"), "sandbox", "has a `reward` that is not a number: 'good'"),
    "no number for a reward": (
        '{"type":"observation","data":{"observation":{},"reward":NaN}}',
        "sandbox",
        "has a `reward` that is not a number: 'nan'",
    ),
    "a whole number that no float holds": (observed(10**400), "sandbox", "has a `reward` that is not a number: '1000"),
    "a number that Python does not read": (f'{{"type":"observation","data":{"1" * 5000}}}', "sandbox", "is not JSON"),
    "a reward that is a list": (observed([[1]]), "sandbox", "has a `reward` that is not a number: 'a list'"),
    "brackets without end": ("[" * 100_000 + "]" * 100_000, "sandbox", "the answer to step is not JSON"),
    "a deep code": (f'{{"type":"error","data":{{"code":{"[" * 400}{"]" * 400}}}}}', "sandbox", "(a list)"),
    "an error of odd fields": (
        {
            "type": "error",
            "data": {"code": "VALIDATION_ERROR", "message": "m", "errors": [{"loc": 5}, 7, {"loc": [1]}]},
        },
        "action",
        "takes no such click: m: 5: None; 1: None",
    ),
    "done with no reward": (observed(None, True), "verifier", "the episode is done, and its `reward` is null"),
    "done in words": (observed(0.0, "yes"), "sandbox", "has a `done` that is not true or false"),
    "an error of the action": (error("VALIDATION_ERROR"), "action", "takes no such click: no"),
    "an error of the server": (error("EXECUTION_ERROR", "oops"), "sandbox", "refuses click: oops (EXECUTION_ERROR)"),
    "a dead box": (observed(None, True, {"failure": "sandbox", "reason": "it died"}), "sandbox", "it died"),
    "a box that blames the policy": (observed(None, True, {"failure": "policy"}), "sandbox", "no reason given"),
    "an action of another kind": (observed(0, True, {"failure": "action", "reason": "no"}), "action", "no"),
    "silence": (None, "sandbox", "ended the session at step"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_whatever_a_server_answers_is_blamed_on_one_boundary_and_the_next_lease_works(what: str) -> None:
    reply, boundary, reason = BROKEN[what]
    steps: list[int] = []

    def answers(message: dict[str, Any]) -> Any:
        if message["type"] == "reset":
            return observed()
        steps.append(1)
        return reply if len(steps) == 1 else observed(1.0, True)

    async def run() -> tuple[TrajectoryFailure, Outcome]:
        async with answering(answers) as url:
            theirs = environment(url, sessions=1)
            async with SandboxPool([theirs]) as pool:
                with pytest.raises(TrajectoryFailure) as failed:
                    async with pool.lease(theirs.task("press"), 1) as sandbox:
                        await sandbox.perform(CLICK)
                        await sandbox.verify(REWARD)
                async with pool.lease(theirs.task("press"), 1) as sandbox:
                    await sandbox.perform(CLICK)
                    return failed.value, await sandbox.verify(REWARD)

    failure, outcome = asyncio.run(run())
    assert failure.boundary == boundary
    assert reason in failure.reason
    assert outcome.reaches(1.0)


class Decoding(Scripted):
    """Decodes the screens, as every policy does, all of a batch together."""

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        for one in contexts:
            decode(one.observation.png)
        return super().act(contexts, temperature)


def test_a_screen_that_cannot_be_decoded_ends_its_own_trajectory_and_no_other_of_the_batch(sentence: Sentences) -> None:
    def answers(message: dict[str, Any]) -> dict[str, Any]:
        if message["type"] == "reset":
            return observed(instruction=str(message["data"]["seed"]))
        return observed(screenshot=nonsense()) if broken and broken.pop() else observed(1.0, True)

    broken = [True]

    async def run() -> list[FinishedTrajectory]:
        async with answering(answers) as url:
            theirs = environment(url)
            task = theirs.task("press", max_steps=4)
            planned = [PlannedTrajectory("lake", "run", 0, task, seed, "policy", "p") for seed in (7, 8)]
            with Actor(Decoding([CLICK] * 8)) as actor:
                async with SandboxPool([theirs]) as pool:
                    return await asyncio.gather(
                        *(roll_out(pool, one, [actor], record_elements=False, rule=ContextRule(1)) for one in planned)
                    )

    failed, whole = sorted(asyncio.run(run()), key=lambda one: one.trajectory.success is not None)
    assert whole.trajectory.success
    assert failed.trajectory.failure_boundary == "sandbox"
    sentence(failed.trajectory.failure_reason or "")
    for png in (seen.png for seen in failed.screenshots.values()):
        decode(png)
    assert {step.next_screenshot for step in failed.steps} <= {None, *failed.screenshots}


def test_an_answer_that_comes_late_is_never_taken_for_the_next_one(sentence: Sentences) -> None:
    async def run() -> list[str]:
        reasons: list[str] = []
        async with answering(lambda m: observed() if m["type"] == "reset" else late(0.5, observed(1.0, True))) as url:
            theirs = environment(url, step_timeout_s=0.2)
            async with SandboxPool([theirs]) as pool:
                with pytest.raises(TrajectoryFailure):
                    async with pool.lease(theirs.task("press"), 1) as sandbox:
                        for _ in range(2):
                            with pytest.raises(TrajectoryFailure) as failed:
                                await sandbox.perform(CLICK)
                            reasons.append(failed.value.reason)
                        raise failed.value
        return reasons

    sentence("\n".join(asyncio.run(run())))


@pytest.mark.parametrize("second", [observed(1.0, True), error("VALIDATION_ERROR"), "mumble"])
def test_a_second_answer_to_one_step_is_never_taken_for_the_next_ones(second: Any, sentence: Sentences) -> None:
    def answers(message: dict[str, Any]) -> Any:
        return observed() if message["type"] == "reset" else [observed(), second]

    async def run() -> None:
        async with answering(answers) as url:
            theirs = environment(url)
            async with SandboxPool([theirs]) as pool, pool.lease(theirs.task("press"), 1) as sandbox:
                await sandbox.perform(CLICK)
                await asyncio.sleep(0.05)  # by then it has come
                await sandbox.perform(CLICK)

    with sentence.raises(TrajectoryFailure):
        asyncio.run(run())


def test_a_server_with_no_session_left_is_asked_again(sentence: Sentences) -> None:
    asked: list[int] = []

    def answers(_: dict[str, Any]) -> dict[str, Any]:
        asked.append(1)
        return error("CAPACITY_REACHED") if len(asked) < 3 else observed(1.0, True)

    def of_step(message: dict[str, Any]) -> dict[str, Any]:
        return answers(message) if message["type"] == "step" or len(asked) < 2 else observed()

    assert rolled(of_step, [CLICK]).trajectory.success is True
    one = rolled(lambda _: error("CAPACITY_REACHED", "full"), [CLICK], start_timeout_s=1.0).trajectory
    assert one.failure_boundary == "sandbox"
    sentence(one.failure_reason, "CAPACITY_REACHED")


def test_a_dead_server_is_named_with_its_address(sentence: Sentences) -> None:
    async def start(url: str) -> None:
        theirs = environment(url)
        async with SandboxPool([theirs]) as pool, pool.lease(theirs.task("press"), 1):
            pass

    with sentence.raises(TrajectoryFailure):
        asyncio.run(start("http://127.0.0.1:9"))
    with sentence.raises(FlywheelError, "environments.theirs.url"):
        environment("http://127.0.0.1:9").probes()[0].examine()


def test_seeds_and_splits_of_the_server_are_kept_apart(sentence: Sentences) -> None:
    seeds = {
        "train": {"count": 10, "reset": {"split": "train"}},
        "test": {"first": 3, "count": 2, "reset": {"split": "test"}},
    }
    config = environment("http://a", seeds=seeds, seed_field="index").config
    assert config.reset_of("press", 12) == {"split": "train", "index": 2}
    assert config.reset_of("press", 2_000_001) == {"split": "test", "index": 4}
    assert config.reset_of("press", 1_000_001) == {"index": 1_000_001}
    with sentence.raises(TrajectoryFailure, "seeds.test"):
        config.reset_of("press", 2_000_002)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"url": "ftp://a"}, "'ftp://a' is not an address"),
        ({"actions": {"tap": {}}}, "there is no action 'tap'"),
        ({"actions": {"click": {"at": "{content}"}}}, "click has no {content}"),
        ({"seeds": {"train": {"count": 5}, "test": {"first": 4, "count": 5}}}, "would be trained on"),
        ({"sessions": 0}, "sessions"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        environment(**({"url": "http://a"} | keys))
    assert message in str(refused.value)


def test_pictures_come_in_several_forms() -> None:
    rows = [[[255, 0, 0]] * 4] * 3
    for given in (picture(4, 3), f"data:image/png;base64,{picture(4, 3)}", picture(4, 3, "jpeg"), rows):
        png, width, height = picture_of(json.loads(json.dumps(given)))
        assert (png[:4], width, height) == (b"\x89PNG", 4, 3)


def test_points_at_the_edge_stay_on_the_screen() -> None:
    values = values_of(act.Drag(x=1.0, y=0.0, to_x=0.0, to_y=1.0), 160, 210)
    assert [values[name] for name in ("x_px", "y_px", "to_x_px", "to_y_px")] == [159, 0, 0, 209]


def test_doctor_names_every_task_that_does_not_start_with_the_split_whose_seed_is_refused(sentence: Sentences) -> None:
    def answers(message: dict[str, Any]) -> dict[str, Any]:
        data = message.get("data", {})
        if message["type"] == "reset" and (data["task"] == "gone" or data["seed"] >= 2_000_000):
            return error("VALIDATION_ERROR", f"not {data['task']}")
        return observed()

    tasks = {name: {"instruction": "Press it.", "reset": {"task": name}} for name in ("held", "gone")}

    async def run() -> None:
        async with answering(answers) as url:
            with pytest.raises(FlywheelError) as raised:
                await environment(url, tasks=tasks).starts()
        sentence(raised.value.problem, "environments.theirs.tasks.held", "environments.theirs.tasks.gone")

    asyncio.run(run())
