"""What trainings read of perception data, and of failed trajectories themselves."""

from pathlib import Path
from typing import Any

import pytest

from learning.data.sample import TrainSample, order_of, read_samples
from schemas.action import Click, Wait, to_json
from schemas.context import ContextRule
from storage.catalog import ask
from storage.lake import Lake
from tasks.train.supervised import MixturePart, drawn, perception_part, write_mixture

CLICK = to_json(Click(x=0.5, y=0.25))
THINKS = {"thoughts": True, "without": 0.0}
A, B, M = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def told(lake: Lake, row: Any) -> Lake:
    """A good, a failed and a suspicious trajectory of two steps each, with every kind of perception data."""
    for name, route, task in (("good", "sft", "one"), ("bad", "ct", "two"), ("odd", "quarantine", "two")):
        lake.append("trajectories", [row("trajectories", trajectory_id=name, task_id=task, n_steps=2)])
        lake.append("verdicts", [row("verdicts", trajectory_id=name, route=route)])
        lake.append(
            "steps",
            [
                row("steps", trajectory_id=name, step=0, screenshot=A, next_screenshot=B, actions=[CLICK]),
                row("steps", trajectory_id=name, step=1, screenshot=B, actions=[to_json(Wait())], thought="Hm."),
            ],
        )
        asked: list[dict[str, Any]] = [
            {"kind": "description", "question": "What is at {place}?", "thought": "A link.", "action": CLICK},
            {"kind": "caption", "question": "Describe this screen.", "thought": "A link."},
            {"kind": "question", "question": "How many links are there?", "thought": "1."},
            {"kind": "marks", "question": "Which mark is on the link?", "thought": "2.", "before": A, "after": M},
            {"kind": "transition", "thought": "Nothing.", "before": A, "after": B},
        ]
        lake.append(
            "annotations",
            [
                row(
                    "annotations",
                    **{"annotation_id": f"{name} {one['kind']}", "trajectory_id": name, "action": None} | one,
                )
                for one in asked
            ],
        )
    return lake


def read(folder: Path) -> list[TrainSample]:
    return [sample for sample in read_samples(folder / "samples") if sample.kind != "step"]


def test_what_is_asked_of_one_screen_twice_comes_once_and_nothing_of_quarantine(told: Lake, tmp_path: Path) -> None:
    weighed = ask(told, "perception_weights")
    assert sorted(weighed["kind"].to_pylist()) == ["caption", "description", "marks", "question", "transition"]
    assert sum(weighed["weight"].to_pylist()) == pytest.approx(1.0)
    assert all(source.startswith("bad") for source in weighed["source"].to_pylist())
    shown = write_mixture(
        tmp_path / "samples",
        [perception_part(told, told.versions(), 1.0)],
        10,
        0,
        told,
        told.versions(),
        ContextRule(1),
    )
    assert shown == {A, B, M}
    made = {sample.thought + sample.kind: sample for sample in read(tmp_path)}
    assert made["2.perception"].screenshots == (M,)
    assert made["Nothing.transition"].screenshots == (A, B)
    asked = made["1.perception"]
    assert (asked.instruction, asked.screenshots, asked.actions) == ("How many links are there?", (A,), ())
    places = [sample.actions for sample in made.values() if sample.instruction == "What is at {place}?"]
    assert places == [(CLICK,)]


def test_the_steps_of_failed_trajectories_are_targets_with_their_instruction_and_history(
    told: Lake, row: Any, tmp_path: Path
) -> None:
    told.append("trajectories", [row("trajectories", trajectory_id="mute", task_id="two")])
    told.append("verdicts", [row("verdicts", trajectory_id="mute", route="ct")])
    told.append("steps", [row("steps", trajectory_id="mute", actions=[])])
    weighed = ask(told, "continual_step_weights")
    assert [(one["trajectory_id"], one["step"], one["weight"]) for one in weighed.to_pylist()] == [
        ("bad", 0, 0.5),
        ("bad", 1, 0.5),
    ]
    part = MixturePart(weighed, "training_samples", steps=True, parameters=THINKS)
    write_mixture(tmp_path / "samples", [part], 4, 0, told, told.versions(), ContextRule(2))
    first, second = read_samples(tmp_path / "samples")
    assert (first.instruction, first.actions, first.screenshots) == ("Click.", (CLICK,), (A,))
    assert (second.thought, second.actions, second.screenshots) == ("Hm.", (to_json(Wait()),), (A, B))
    assert [past.actions for past in second.history] == [(CLICK,)]


def test_a_step_in_whose_place_a_person_put_another_is_no_target(told: Lake, row: Any) -> None:
    told.append("reviews", [row("reviews", trajectory_id="bad", step=0, decision="correct", action=CLICK)])
    assert ask(told, "continual_step_weights")["weight"].to_pylist() == [None, 1.0]


def test_parts_come_by_their_shares_and_one_alone_as_if_there_were_no_other(told: Lake, tmp_path: Path) -> None:
    steps = MixturePart(ask(told, "continual_step_weights"), "training_samples", 0.75, True, THINKS)
    perceived = perception_part(told, told.versions(), 0.25)
    write_mixture(tmp_path / "samples", [steps, perceived], 400, 3, told, told.versions(), ContextRule(1))
    samples = read_samples(tmp_path / "samples")
    order = order_of(samples)
    assert order is not None
    kinds = [samples[number].kind for number in order.tolist()]
    assert kinds.count("step") == pytest.approx(300, abs=15)
    none = MixturePart(ask(told, "perception_weights", {}), "perception_samples", 0.25)
    assert none.usable == 0
    write_mixture(tmp_path / "samples", [steps, none], 40, 3, told, told.versions(), ContextRule(1))
    alone = order_of(read_samples(tmp_path / "samples"))
    (come,) = drawn([steps.weighed], 40, 3)
    assert alone is not None and come.num_rows == 2 and len(alone) == 40
