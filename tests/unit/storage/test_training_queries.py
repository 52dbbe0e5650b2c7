"""What the queries of training say of a lake, held against plain Python; and how samples share a training."""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from learning.data.rounds import Sampler
from learning.data.sample import TrainSample, order_of, read_samples, read_screenshots
from learning.data.slices import slices
from models.families.family import TinyFamily
from schemas.action import Click, Note, Wait, to_json
from schemas.config.policy import PolicyConfig
from schemas.context import ContextRule
from schemas.failure import LakeError
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.material import write_pictures
from tasks.train.preferences import preferences_of
from tasks.train.supervised import MixturePart, drawn, write_mixture
from tests.fixtures.sentences import Sentences
from tests.unit.storage.plain_samples import continual_samples, questions_of, samples_of, weigh

POSITIONS, SEED = 2_000, 3
SHARES = {"balance": 0.7, "floor": 0.15, "grounding_share": 0.15, "practice_share": 0.2, "measured": "p1"}
SHARES |= {"prefixes": "people", "corrections": "all"}
CORRECTED = "Thought: There.\nAction: click(start_box='(123,500)')"


@pytest.fixture
def busy(lake: Lake, row) -> Lake:
    """Forty trajectories in five tasks: detours, groups, screens in common, questions asked twice, second thoughts."""
    draw = random.Random(5)
    tables: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("trajectories", "verdicts", "steps", "annotations")
    }

    def annotate(step: dict[str, Any], kind: str, **more: Any) -> None:
        number = len(tables["annotations"])
        made = {"annotation_id": f"a{number:05d}", "trajectory_id": step["trajectory_id"], "step": step["step"]}
        tables["annotations"].append(row("annotations", kind=kind, **made, **more))

    for number in range(40):
        name, task = f"t{number:02d}", draw.randrange(5)
        route = draw.choice(["sft", "sft", "ct", "none"])
        group = draw.choice([None, f"g{task}"])
        tables["trajectories"].append(row("trajectories", trajectory_id=name, task_id=f"task-{task}", group_id=group))
        tables["verdicts"].append(row("verdicts", trajectory_id=name, route=route))
        screens = [f"{task}{draw.randrange(6):x}" * 32 for _ in range(draw.randint(1, 9))]
        for place, screen in enumerate(screens):
            action = to_json(draw.choice([Wait(), Click(x=0.1, y=0.2), Note(content="Seen.")]))
            thought = draw.choice(["", "", "Because."])
            step = row(
                "steps",
                trajectory_id=name,
                step=place,
                screenshot=screen,
                thought=thought,
                actions=[action],
            )
            tables["steps"].append(step)
            if route == "sft" and not thought:
                annotate(step, "thought", thought="Said later.")
            for asked in range(draw.choice([0, 0, 2])):
                annotate(step, "grounding", thought=f"{screen[:2]} {asked}", action=to_json(Click(x=0.3, y=asked / 7)))
            if route == "ct" and place:
                annotate(step, "inverse_dynamics", thought="", action=action, before=screens[place - 1], after=screen)
                annotate(step, "transition", thought="It moved.", action=None, before=screens[place - 1], after=screen)
    for table, rows in tables.items():
        lake.append(table, rows)
    measured = [("task-0", True), ("task-0", False), ("task-1", True), ("task-2", None)]
    lake.append(
        "evaluations", [row("evaluations", task_id=task, seed=n, success=won) for n, (task, won) in enumerate(measured)]
    )
    return lake


def through_the_lake(
    lake: Lake, folder: Path, images: int, practice: list[str], thoughts: bool = True, without: float = 0.0
) -> list[TrainSample]:
    """The sample at each position of a training, as the trainer reads it."""
    weighed = ask(lake, "training_weights", **SHARES, history_images=images, practice=practice)
    asked = {"thoughts": thoughts, "without": without}
    part = MixturePart(weighed, "training_samples", steps=True, parameters=asked)
    write_mixture(folder / "samples", [part], POSITIONS, SEED, lake, lake.versions(), ContextRule(images))
    return in_order(folder)


def in_order(folder: Path) -> list[TrainSample]:
    samples = read_samples(folder / "samples")
    order = order_of(samples)
    assert order is not None and len(order) == POSITIONS
    return [samples[sample] for sample in order.tolist()]


def plainly(lake: Lake, images: int, practice: list[str]) -> list[TrainSample]:
    """The same by plain Python."""
    routes = {one["trajectory_id"]: one["route"] for one in lake.read("verdicts").to_pylist()}
    trajectories = sorted(lake.read("trajectories").to_pylist(), key=lambda one: one["trajectory_id"])
    steps = sorted(lake.read("steps").to_pylist(), key=lambda one: (one["trajectory_id"], one["step"]))
    annotations = annotations_of(lake)
    samples = samples_of(
        [{**one, "route": routes[one["trajectory_id"]]} for one in trajectories],
        {
            name["trajectory_id"]: [one for one in steps if one["trajectory_id"] == name["trajectory_id"]]
            for name in steps
        },
        {(one["trajectory_id"], one["step"]): one["thought"] for one in annotations if one["kind"] == "thought"},
        questions_of([one for one in annotations if one["kind"] == "grounding"]),
        images,
    )
    return weigh(samples, {"task-0": 0.5, "task-1": 1.0}, 0.7, practice, 0.2)


def annotations_of(lake: Lake) -> list[dict[str, Any]]:
    screens = {(one["trajectory_id"], one["step"]): one["screenshot"] for one in lake.read("steps").to_pylist()}
    rows = sorted(lake.read("annotations").to_pylist(), key=lambda one: one["annotation_id"])
    return [{**one, "screenshot": screens[one["trajectory_id"], one["step"]]} for one in rows]


def same(found: list[TrainSample], expected: list[TrainSample]) -> None:
    """At every position the sampler's choice among the expected ones, with its weight."""
    sampler = Sampler([sample.weight for sample in expected], SEED)
    for position, sample in enumerate(found):
        wanted = expected[sampler.sample(position)]
        assert sample.weight == pytest.approx(wanted.weight)
        assert replace(sample, weight=0.0) == replace(wanted, weight=0.0)


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("practice", [[], ["task-3"], [f"task-{task}" for task in range(5)]])
def test_every_position_of_a_training_has_the_sample_that_plain_python_gives_it(
    busy: Lake, tmp_path: Path, images: int, practice: list[str]
) -> None:
    same(through_the_lake(busy, tmp_path, images, practice), plainly(busy, images, practice))


def test_with_slices_all_replies_between_two_folds_come_at_once_and_each_as_often_as_without(
    busy: Lake, tmp_path: Path
) -> None:
    rule = PolicyConfig(context="fold", live_images=3, fold_images=2).context_rule
    weighed = ask(busy, "training_weights", **SHARES, history_images=rule.live, practice=[])
    part = MixturePart(weighed, "training_samples", steps=True, parameters={"thoughts": True, "without": 0.0})
    count = 20_000
    write_mixture(tmp_path / "samples", [part], count, SEED, busy, busy.versions(), rule, sliced=True)
    samples = read_samples(tmp_path / "samples")
    positions = samples.table["positions"].to_pylist()
    cut = slices(samples, rule)
    assert sorted(number for members in cut for number in members) == list(range(len(samples)))
    assert max(map(len, cut)) == 3 and sum(len(positions[members[0]]) for members in cut) == count
    for members in cut:
        assert all(positions[one] == positions[members[0]] for one in members)
        assert len({(samples[one].task_id, rule.folded(len(samples[one].history) + 1)) for one in members}) == 1
        for one in members:
            assert len(samples[one].screenshots) == rule.shown(len(samples[one].history) + 1)
    plain = drawn([weighed], count, SEED)[0]
    often = {
        row: len(times) for row, times in zip(plain["row"].to_pylist(), plain["positions"].to_pylist(), strict=True)
    }
    total = sum(map(len, positions))
    assert total > 1.5 * count
    for row, times in zip(sorted(often), positions, strict=True):
        assert len(times) / total == pytest.approx(often[row] / count, rel=0.15, abs=3 / count)


@pytest.mark.slow
def test_a_share_of_the_trajectories_is_read_without_their_thoughts_or_all_of_them(busy: Lake, tmp_path: Path) -> None:
    def thoughts_of(sample: TrainSample) -> tuple[str, ...]:
        return (sample.thought, *(past.thought for past in sample.history))

    whole = through_the_lake(busy, tmp_path, 1, [])
    none = through_the_lake(busy, tmp_path, 1, [], thoughts=False)
    some = through_the_lake(busy, tmp_path, 1, [], without=0.4)
    assert any(any(thoughts_of(one)) for one in whole) and not any(any(thoughts_of(one)) for one in none)
    silent = [not any(thoughts_of(now)) for was, now in zip(whole, some, strict=True) if all(thoughts_of(was))]
    assert 0.2 < sum(silent) / len(silent) < 0.6
    assert all(now == was or not any(thoughts_of(now)) for was, now in zip(whole, some, strict=True))


def test_continual_training_has_at_every_position_the_sample_that_plain_python_gives_it(
    busy: Lake, tmp_path: Path
) -> None:
    routes = {one["trajectory_id"]: one["route"] for one in busy.read("verdicts").to_pylist()}
    tasks = {one["trajectory_id"]: one["task_id"] for one in busy.read("trajectories").to_pylist()}
    rows = [
        {**one, "task_id": tasks[one["trajectory_id"]]}
        for one in annotations_of(busy)
        if routes[one["trajectory_id"]] == "ct" and one["kind"] != "thought"
    ]
    continually(busy, tmp_path)
    expected = continual_samples(rows)
    everywhere = questions_of([one for one in annotations_of(busy) if one["kind"] == "grounding"])
    asked = [
        replace(one, questions=tuple(everywhere[one.screenshots[0]])) if one.questions else one for one in expected
    ]
    same(in_order(tmp_path), asked)


def test_a_training_reads_no_more_samples_than_it_has_positions(busy: Lake) -> None:
    weighed = ask(busy, "training_weights", **SHARES, history_images=1, practice=[])
    assert drawn([weighed], 4, SEED)[0].num_rows <= 4 < weighed.num_rows


def test_a_second_decision_on_a_trajectory_does_not_teach_it_twice(busy: Lake, row) -> None:
    before = ask(busy, "training_weights", **SHARES, history_images=1, practice=[])
    again = [{**one, "gate_version": "2"} for one in busy.read("verdicts").to_pylist()]
    busy.append("verdicts", again)
    assert ask(busy, "training_weights", **SHARES, history_images=1, practice=[]).equals(before)


def test_a_step_that_was_thought_about_twice_is_taught_with_the_last_thought(lake: Lake, row, tmp_path: Path) -> None:
    wait = to_json(Wait())
    lake.append("trajectories", [row("trajectories")])
    lake.append("verdicts", [row("verdicts")])
    lake.append("steps", [row("steps", actions=[wait])])
    first = row("annotations", annotation_id="z", kind="thought", thought="A machine's.")
    later = {"annotation_id": "a", "thought": "A person's.", "created_at": first["created_at"].replace(hour=13)}
    lake.append("annotations", [first, {**first, **later}])
    assert {sample.thought for sample in through_the_lake(lake, tmp_path, 1, [])} == {"A person's."}


def test_trajectories_of_one_group_that_did_the_same_teach_it_once(lake: Lake, row) -> None:
    groups = {"a": "g", "b": "g", "c": "h", "d": None, "e": None}
    lake.append("trajectories", [row("trajectories", trajectory_id=t, group_id=g) for t, g in groups.items()])
    lake.append("verdicts", [row("verdicts", trajectory_id=t) for t in groups])
    lake.append("steps", [row("steps", trajectory_id=t, actions=[to_json(Wait())]) for t in groups])
    weighed = ask(lake, "training_weights", **SHARES, history_images=1, practice=[])
    taught = {one["trajectory_id"] for one in weighed.to_pylist() if one["weight"] is not None}
    assert taught == {"a", "c", "d", "e"}


def continually(lake: Lake, folder: Path) -> Sequence[TrainSample]:
    part = MixturePart(ask(lake, "continual_weights"), "continual_samples")
    write_mixture(folder / "samples", [part], POSITIONS, SEED, lake, lake.versions(), ContextRule(1))
    return read_samples(folder / "samples")


@pytest.fixture
def failed(lake: Lake, row) -> Lake:
    """A failure of each of two tasks: questions about the first screen, and what led from it to others."""
    wait, click = to_json(Wait()), to_json(Click(x=0.5, y=0.5))
    for task, screens in (("t", "bbcd"), ("u", "e")):
        lake.append("trajectories", [row("trajectories", trajectory_id=task, task_id=task)])
        lake.append("verdicts", [row("verdicts", trajectory_id=task, route="ct")])
        steps = [row("steps", trajectory_id=task, step=place, actions=[wait]) for place in range(len(screens))]
        lake.append("steps", steps)
        led = [
            row("annotations", annotation_id=f"{task}{place}", trajectory_id=task, step=place, kind="inverse_dynamics")
            | {"before": "a" * 64, "after": after, "action": click if place else wait, "thought": ""}
            for place, after in enumerate(screens)
        ]
        lake.append("annotations", led)
    told = {"kind": "transition", "before": "a" * 64, "after": "b", "action": None, "thought": "Nothing."}
    lake.append("annotations", [row("annotations", trajectory_id="t"), row("annotations", annotation_id="x", **told)])
    lake.append("annotations", [row("annotations", annotation_id="y", trajectory_id="t", **told)])
    return lake


def test_two_actions_between_the_same_screens_do_not_contradict_each_other(failed: Lake, tmp_path: Path) -> None:
    made = continually(failed, tmp_path)
    kept = [sample.actions for sample in made if sample.screenshots == ("a" * 64, "b") and sample.actions]
    assert kept == [(to_json(Wait()),)]


def test_no_sample_of_a_failed_play_knows_its_instruction(failed: Lake, tmp_path: Path) -> None:
    made = continually(failed, tmp_path)
    assert {sample.kind for sample in made} == {"inverse_dynamics", "naming", "step", "transition"}
    assert {sample.instruction for sample in made} == {""} and not any(sample.history for sample in made)


def test_kinds_share_a_continual_training_equally_then_tasks_then_samples(failed: Lake) -> None:
    rows = ask(failed, "continual_weights").to_pylist()
    shares = {(one["kind"], one["task_id"]): one["weight"] for one in rows}
    assert shares["inverse_dynamics", "t"] == pytest.approx(1 / 4 / 2 / 3)
    assert shares["inverse_dynamics", "u"] == pytest.approx(1 / 4 / 2)
    assert shares["transition", "t"] == shares["naming", "t"] == pytest.approx(1 / 4)


@pytest.mark.parametrize(("balance", "ratio"), [(1.0, 1.15 / 0.15), (0.0, 1.0)])
def test_tasks_share_by_weakness_however_many_samples_they_have(lake: Lake, row, balance: float, ratio: float) -> None:
    for task, trajectories, success in (("easy", 30, True), ("hard", 2, False)):
        names = [f"{task}{number}" for number in range(trajectories)]
        lake.append("trajectories", [row("trajectories", trajectory_id=name, task_id=task) for name in names])
        lake.append("verdicts", [row("verdicts", trajectory_id=name) for name in names])
        lake.append("steps", [row("steps", trajectory_id=name, actions=[to_json(Wait())]) for name in names])
        lake.append("evaluations", [row("evaluations", task_id=task, success=success)])
    asked = {**SHARES, "balance": balance}
    rows = ask(lake, "training_weights", **asked, history_images=1, practice=[]).to_pylist()
    easy, hard = (sum(one["weight"] for one in rows if task in one["trajectory_id"]) for task in ("easy", "hard"))
    assert hard / easy == pytest.approx(ratio)


def test_a_pair_comes_with_all_screens_and_replies_before_its_step_and_shows_those_of_the_rule(lake: Lake, row) -> None:
    errors = ("no page", None, None, None)
    steps = [
        row("steps", step=at, screenshot=f"{at}" * 64, raw_text=f"reply {at}", action_error=errors[at])
        for at in range(4)
    ]
    lake.append("trajectories", [row("trajectories")])
    lake.append("steps", steps)
    pair = {"pair_id": "p", "trajectory_id": "t0", "iteration": 1, "task_id": "miniwob/a", "seed": 1, "kind": "parting"}
    pair |= {"chosen": "yes", "rejected": "no", "rejected_trajectory_id": "t1", "verified": True}
    lake.append("pairs", [{**pair, "step": 2}, {**pair, "pair_id": "q", "step": 0}])
    late, early = ask(lake, "training_pairs", corrections="all").to_pylist()
    assert late["screenshots"] == ["0" * 64, "1" * 64, "2" * 64]
    assert [past["raw_text"] for past in late["past"]] == ["reply 0", "reply 1"]
    assert (early["screenshots"], early["past"], early["instruction"]) == (["0" * 64], [], "Click.")
    for policy, shown in (
        ({"history_images": 2}, "12"),
        ({"context": "fold", "live_images": 2, "fold_images": 2}, "2"),
    ):
        (read,) = preferences_of([late], TinyFamily(PolicyConfig.model_validate(policy)))
        assert [name[0] for name in read.screenshots] == list(shown) and len(read.past_replies) == 2
        assert read.past_errors == ("no page", "")


def test_the_sides_of_a_pair_have_the_actions_of_their_steps_and_those_of_a_correction_only_the_rejected(
    lake: Lake, row
) -> None:
    clicks = {name: to_json(Click(x=x, y=0.5)) for name, x in (("t0", 0.1234), ("t1", 0.9))}
    for name, action in clicks.items():
        lake.append("trajectories", [row("trajectories", trajectory_id=name)])
        lake.append("steps", [row("steps", trajectory_id=name, step=at, actions=[action]) for at in range(2)])
    pair = {"pair_id": "p", "trajectory_id": "t0", "iteration": 1, "task_id": "miniwob/a", "seed": 1, "kind": "parting"}
    pair |= {"chosen": "yes", "rejected": "no", "rejected_trajectory_id": "t1", "verified": True, "step": 1}
    corrected = {"pair_id": "q", "kind": "correction", "rejected_trajectory_id": "t0"}
    lake.append("pairs", [pair, pair | corrected])
    parting, correction = ask(lake, "training_pairs", corrections="all").to_pylist()
    assert (parting["chosen_actions"], parting["rejected_actions"]) == ([clicks["t0"]], [clicks["t1"]])
    assert (correction["chosen_actions"], correction["rejected_actions"]) == (None, [clicks["t0"]])
    first, second = preferences_of([parting, correction | {"chosen": CORRECTED}], TinyFamily(PolicyConfig()))
    assert (first.chosen, first.rejected) == tuple(f"Action: click(start_box='({x},500)')" for x in (120, 900))
    assert first.past_replies == (first.chosen,) and second.chosen == CORRECTED.replace("123", "120")
    (gibberish,) = preferences_of([parting | {"rejected_actions": None}], TinyFamily(PolicyConfig()))
    assert gibberish.rejected == "no"


def test_a_step_that_an_import_s_source_takes_out_of_training_is_no_target_and_preferred_by_no_pair(
    lake: Lake, row
) -> None:
    """Such as a message with `loss_mask` 0, or a step of ATIF with `is_copied_context`."""
    told = {0: json.dumps({"flywheel": {"target": False}}), 1: json.dumps({"flywheel": {"actor": "x"}}), 2: None}
    for name, route in (("good", "sft"), ("bad", "ct"), ("copied", "ct")):
        lake.append("trajectories", [row("trajectories", trajectory_id=name, task_id=f"task-{name}", n_steps=3)])
        lake.append("verdicts", [row("verdicts", trajectory_id=name, route=route)])
        steps = [(at, told[0] if name == "copied" else extra) for at, extra in told.items()]
        lake.append(
            "steps",
            [
                row(
                    "steps",
                    trajectory_id=name,
                    step=at,
                    actions=[to_json(Wait())],
                    screenshot=f"{at}" * 64,
                    extra=extra,
                )
                for at, extra in steps
            ],
        )
    weighed = ask(lake, "training_weights", **SHARES, history_images=1, practice=[]).to_pylist()
    assert [one["step"] for one in weighed if one["trajectory_id"] == "good" and one["weight"]] == [1, 2]
    continual = {
        (one["trajectory_id"], one["step"]): one["weight"] for one in ask(lake, "continual_step_weights").to_pylist()
    }
    assert [continual["bad", at] for at in range(3)] == [None, pytest.approx(0.5), pytest.approx(0.5)]
    assert [continual["copied", at] for at in range(3)] == [None] * 3
    assert ask(lake, "accepted_steps")["n"].to_pylist() == [2]
    pair = {"trajectory_id": "good", "iteration": 1, "task_id": "task-good", "seed": 1, "kind": "parting"}
    pair |= {"chosen": "yes", "rejected": "no", "rejected_trajectory_id": "bad", "verified": True}
    lake.append("pairs", [{**pair, "pair_id": f"p{at}", "step": at} for at in range(3)])
    pairs = ask(lake, "training_pairs", corrections="all").to_pylist()
    assert [one["pair_id"] for one in pairs] == ["p1", "p2"]


def test_of_stored_successes_the_newest_of_a_task_is_shown_and_the_newest_of_a_seed(lake: Lake, row) -> None:
    stored = {"a": (1, 5), "b": (2, 5), "c": (3, 6), "d": (4, 7)}
    for name, (iteration, seed) in stored.items():
        more = {"trajectory_id": name, "iteration": iteration}
        lake.append("trajectories", [row("trajectories", seed=seed, policy="explorer", **more)])
        lake.append("verdicts", [row("verdicts", **more)])
        lake.append("steps", [row("steps", actions=[to_json(Wait())], **more)])
    rows = ask(lake, "demonstrations", tasks=["miniwob/a"], seeds=[5]).to_pylist()
    assert [one["trajectory_id"] for one in rows] == ["d", "b"]


@pytest.mark.parametrize(("graded", "wanted"), [(True, 0.875), (False, 1.0)])
def test_a_stored_success_of_a_graded_task_is_worth_its_own_reward(
    lake: Lake, row, graded: bool, wanted: float
) -> None:
    about = {"environment": "games", "template": "a", "instruction": "i", "tags": [], "split": "train", "max_steps": 3}
    lake.append("tasks", [about | {"task_id": "miniwob/a", "verifier": "games", "threshold": 0.8, "graded": graded}])
    lake.append("trajectories", [row("trajectories", policy="explorer", reward=0.875)])
    lake.append("verdicts", [row("verdicts")])
    lake.append("steps", [row("steps", actions=[to_json(Wait())])])
    (found,) = ask(lake, "demonstrations", tasks=["miniwob/a"], seeds=[1]).to_pylist()
    assert found["reward"] == wanted


def test_pictures_come_as_they_rest_in_the_lake_and_one_that_is_missing_is_named(
    lake: Lake, row, tmp_path: Path, sentence: Sentences
) -> None:
    pngs = {hashlib.sha256(png).hexdigest(): png for png in (f"picture {number}".encode() for number in range(300))}
    names = list(pngs)
    lake.append("screenshots", [row("screenshots", sha256=name, png=png) for name, png in pngs.items()])
    write_pictures(tmp_path / "pictures", lake, names[10:], lake.version("screenshots"))
    assert read_screenshots(tmp_path / "pictures") == {name: pngs[name] for name in names[10:]}
    with sentence.raises(LakeError, "f" * 64, hint="screenshots"):
        write_pictures(tmp_path / "pictures", lake, [names[0], "f" * 64], None)
    lake.upsert("screenshots", [row("screenshots", sha256=names[7], png=pngs[names[8]])])
    with sentence.raises(LakeError, names[7], hint="screenshots"):
        write_pictures(tmp_path / "pictures", lake, names, None)


def test_a_person_s_correction_is_imitated_in_the_place_of_its_step_after_the_steps_that_led_there(
    lake: Lake, row, tmp_path: Path
) -> None:
    action, better = to_json(Click(x=0.1, y=0.2)), to_json(Click(x=0.9, y=0.2))
    for name, route in (("failed", "ct"), ("won", "sft"), ("held", "quarantine")):
        unverified = row("trajectories", trajectory_id=name, task_id="task-0", success=False)
        lake.append("trajectories", [unverified])
        lake.append("verdicts", [row("verdicts", trajectory_id=name, route=route, passed=route == "sft")])
        screens = [f"{name[0]}{place}" * 32 for place in range(3)]
        lake.append(
            "steps",
            [
                row(
                    "steps",
                    trajectory_id=name,
                    step=place,
                    screenshot=screen,
                    thought=f"{name} {place}",
                    actions=[action],
                    action_error="no page" if place == 1 else None,
                )
                for place, screen in enumerate(screens)
            ],
        )
        written = {"trajectory_id": name, "step": 1, "action": better, "decision": "correct"}
        first = row("reviews", **written, review_id=f"{name}-0", revision=0, thought="Hasty.")
        lake.append(
            "reviews", [first, row("reviews", **written, review_id=f"{name}-1", revision=1, thought=f"{name}: better")]
        )

    def taught() -> dict[tuple[str, ...], tuple[list[str], int]]:
        samples = through_the_lake(lake, tmp_path, 2, [])
        return {(one.thought, *one.actions): (list(one.screenshots), len(one.history)) for one in samples}

    assert taught() == {
        ("won 0", action): (["w0" * 32], 0),
        ("won 2", action): (["w1" * 32, "w2" * 32], 2),
        ("won: better", better): (["w0" * 32, "w1" * 32], 1),
        ("failed: better", better): (["f0" * 32, "f1" * 32], 1),
    }
    weighed = ask(lake, "training_weights", **SHARES, history_images=2, practice=[]).to_pylist()
    targets = {(one["trajectory_id"], one["step"], one["corrected"]) for one in weighed if one["weight"]}
    assert targets == {("won", 0, False), ("won", 2, False), ("won", 1, True), ("failed", 1, True)}
    errors = {one.thought: [past.error for past in one.history] for one in through_the_lake(lake, tmp_path, 2, [])}
    assert errors["won 2"] == ["", "no page"] and errors["won: better"] == [""]
    undo = {"decision": "undo", "revision": 2, "trajectory_id": "failed", "step": None}
    lake.append("reviews", [row("reviews", **undo, review_id="undone", undoes="failed-1")])
    samples = [one for one in through_the_lake(lake, tmp_path, 1, []) if one.screenshots[-1] == "f1" * 32]
    assert {(one.thought, len(one.history)) for one in samples} == {("Hasty.", 1)}
