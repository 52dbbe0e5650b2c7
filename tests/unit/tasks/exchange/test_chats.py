"""Chats of others with words and further replies between screens: how they are filtered, and what they teach."""

import io
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from curation.converters.exchanged import Picture, RecordPlace
from curation.converters.files import picture_of
from curation.converters.format import FORMATS
from schemas.config import config_of
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import Verdict
from storage.catalog import ask
from storage.lake import Lake
from tasks.exchange.export import export_trajectories
from tasks.exchange.importing import Request, _import_records  # pyright: ignore[reportPrivateUsage]
from tasks.filter import decide
from tasks.running.run import Run
from tests.tiers import NIGHTLY
from tests.unit.curation.converters.records import taken

ASKED, SCREEN = {"role": "user", "content": "Buy it."}, {"role": "user", "content": "<image>"}
FIRST, SECOND, THIRD = (
    {"role": "assistant", "content": f"Action: click(start_box='({at},{at})')"} for at in (100, 300, 500)
)
PLAN = {"role": "assistant", "content": "I open the menu first."}
RESULT = {"role": "tool", "content": "price: 5"}
ITERATION = -2
ASKS = {"history_images": 2, "measured": "", "balance": 0.5, "floor": 0.1, "grounding_share": 0.1}


@cache
def screen(number: int) -> Picture:
    """A screen that no gate takes for a blank one."""
    drawn = io.BytesIO()
    Image.frombytes("RGB", (320, 240), random.Random(number).randbytes(320 * 240 * 3)).save(drawn, "PNG")
    return picture_of(drawn.getvalue(), RecordPlace(""), "images")


def imported(tmp_path: Path, name: str, data: dict[str, Any] | Path) -> Run:
    """A lake with this row or export, as a demonstration, filtered by the gates that look at actions."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.png").write_bytes(screen(number).png)
    lake = {"uri": str(tmp_path / "lake"), "min_free_mb": 1}
    rules = ["actions", "thoughts", "loops", "redundant", "transient", "evidence", "shortcut", "duplicates"]
    gates = {"gates": ["environment", *rules, "verifier"]}
    suite = {"tasks": ["click-one"]}
    config = config_of({"lake": lake, "environments": {"fake": {}}, "suite": suite, "filter": gates})
    run = Run(config, Lake.open(config.lake), "run")
    if isinstance(data, Path):
        decided_on(run, ITERATION, Request(format=name, path=data, demonstrations=True))
    else:
        more(run, folder, ITERATION, [data], name)
    return run


def more(run: Run, folder: Path, iteration: int, rows: list[dict[str, Any]], name: str = "trl") -> list[Verdict]:
    """What the filter decides on further rows."""
    file = folder / ("theirs.json" if name == "atif" else "theirs.jsonl")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return decided_on(run, iteration, Request(format=name, path=folder, unit="thousandths", demonstrations=True))


def decided_on(run: Run, iteration: int, asked: Request) -> list[Verdict]:
    """What the filter decides on an import."""
    _import_records(run, iteration, asked, f"import:{asked.format}:{iteration % 100:016x}")
    decided, *_ = decide(run.config, run.lake, iteration)
    run.lake.append("verdicts", decided)
    return list(decided)


def taught(run: Run) -> tuple[str, list[int]]:
    """The route of the trajectory, and the steps that a training draws."""
    decision = run.lake.read("verdicts").to_pylist()[-1]
    rows = ask(
        run.lake, "training_weights", **ASKS, practice=[], practice_share=0.0, prefixes="none", corrections="all"
    ).to_pylist()
    return decision["route"], [row["step"] for row in rows if row["weight"] is not None]


CHATS: list[tuple[list[dict[str, Any]], list[int]]] = [
    ([SCREEN, PLAN, FIRST, SCREEN, SECOND], [1, 2]),
    ([SCREEN, PLAN, RESULT, FIRST, SCREEN, SECOND], [1, 2]),
    ([SCREEN, PLAN, PLAN, FIRST, SCREEN, SECOND, RESULT, PLAN], [2, 3]),
    ([SCREEN, FIRST, {"role": "user", "content": "No."}, SECOND, SCREEN, THIRD], [0, 2]),
    ([SCREEN, FIRST, SECOND], [0]),
    ([SCREEN, FIRST, PLAN, SCREEN, SECOND], [0, 2]),
    ([SCREEN, FIRST, RESULT, PLAN, PLAN, SCREEN, SECOND, SCREEN, PLAN, THIRD, PLAN], [0, 3, 5]),
    ([SCREEN, *[PLAN, RESULT] * 6, FIRST, SCREEN, SECOND], [6, 7]),
    ([SCREEN, {**FIRST, "loss_mask": 0}, SCREEN, SECOND], [1]),
    ([SCREEN, FIRST, SCREEN, {**PLAN, "loss_mask": 0}, SCREEN, SECOND], [0, 2]),
    ([SCREEN, {**PLAN, "loss_mask": 0}, FIRST, SCREEN, SECOND], [1, 2]),
]
"""The turns of a chat, and the steps that it teaches."""
EACH = [
    (name, *row) for first, name in enumerate(("trl", "ui-tars")) for row in (CHATS if NIGHTLY else CHATS[first::2])
]
"""Every chat in every format at full size, else in one of them."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chat", "steps"), EACH)
def test_words_and_further_replies_of_a_chat_are_context_of_what_it_teaches(
    tmp_path: Path, name: str, chat: list[dict[str, Any]], steps: list[int]
) -> None:
    images = [f"{number}.png" for number in range(sum(one == SCREEN for one in chat))]
    run = imported(tmp_path, name, {"messages": [ASKED, *chat], "images": images})
    assert taught(run) == ("sft", steps)
    export_trajectories(run.config, run.lake, FORMATS.class_of("agentnet")(), tmp_path / "out", (ITERATION, -1), "sft")
    (again,) = taken(FORMATS.class_of("agentnet")(), tmp_path / "out")
    assert [at for at in range(len(again.steps)) if again.is_target(at)] == steps


def test_the_screen_after_an_action_is_the_next_one_behind_words(tmp_path: Path) -> None:
    chat = [ASKED, SCREEN, FIRST, PLAN, SCREEN, PLAN, SECOND]
    run = imported(tmp_path, "trl", {"messages": chat, "images": ["0.png", "1.png"]})
    rows = sorted(run.lake.read("steps").to_pylist(), key=lambda row: row["step"])
    first, second = (screen(number).sha256 for number in range(2))
    assert [(row["screenshot"], row["next_screenshot"]) for row in rows] == [
        (first, second), (first, second), (second, second), (second, None)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["trl", "ui-tars"])
@pytest.mark.parametrize("content", ["I retry.", "Action: fly(1)"])
def test_a_masked_reply_to_a_screen_of_its_own_hides_it_from_no_action(tmp_path: Path, name: str, content: str) -> None:
    masked = {"role": "assistant", "content": content, "loss_mask": 0}
    chat = [ASKED, SCREEN, FIRST, SCREEN, masked, SCREEN, SECOND]
    run = imported(tmp_path, name, {"messages": chat, "images": ["0.png", "1.png", "2.png"]})
    rows = sorted(run.lake.read("steps").to_pylist(), key=lambda row: row["step"])
    first, second, third = (screen(number).sha256 for number in range(3))
    assert [row["next_screenshot"] for row in rows] == [second, third, None] and rows[0]["screenshot"] == first


def test_words_are_no_steps_to_the_rules_and_hide_no_duplicate(tmp_path: Path) -> None:
    images = ["0.png", "1.png"]
    run = imported(tmp_path, "trl", {"messages": [ASKED, SCREEN, PLAN, FIRST, SCREEN, SECOND], "images": images})
    assert run.lake.read("reflections").num_rows == 0
    rows = [
        {"messages": [ASKED, SCREEN, FIRST, SCREEN, PLAN, SECOND], "images": images},
        {"messages": [ASKED, SCREEN, THIRD, SCREEN, PLAN, SECOND], "images": images},
        {"messages": [ASKED, SCREEN, PLAN, THIRD, SCREEN, SECOND], "images": images},
    ]
    decided = more(run, tmp_path / "theirs", ITERATION - 1, rows)
    assert sorted(one.route for one in decided) == ["rl", "rl", "sft"]
    assert all("which is accepted" in one.reason for one in decided if one.route == "rl")


def test_a_step_without_an_action_that_no_record_takes_out_is_turned_away(tmp_path: Path) -> None:
    run = imported(tmp_path, "trl", {"messages": [ASKED, SCREEN, PLAN, SCREEN, FIRST], "images": ["0.png", "1.png"]})
    assert taught(run) == ("ct", [])
    assert "step 0 holds no action" in run.lake.read("verdicts").to_pylist()[-1]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [("confirmed", [0, 2]), ("after a garbled reply", [0, 3]), ("terminate", [0, 2]), ("declined", [0, 2, 4])],
)
def test_a_run_of_computer_1_is_accepted_and_teaches_its_last_end(tmp_path: Path, name: str, steps: list[int]) -> None:
    """harbor 0.26.0 records an end that its loop asks to confirm, and the confirmation."""
    document = json.loads((Path(__file__).parents[3] / "golden" / "computer-1.json").read_text())[name]
    document["steps"][0]["message"] = [
        {"type": "text", "text": document["steps"][0]["message"]},
        {"type": "image", "source": {"media_type": "image/png", "path": "0.png"}},
    ]
    run = imported(tmp_path, "atif", document)
    assert taught(run) == ("sft", steps)
    (trajectory,) = run.lake.rows(Trajectory, {"iteration": ITERATION})
    assert trajectory.termination == "finished"


def test_words_behind_an_end_change_neither_the_decision_nor_the_termination(tmp_path: Path) -> None:
    end = {"role": "assistant", "content": "Action: finished(content='5')"}
    run = imported(
        tmp_path, "trl", {"messages": [ASKED, SCREEN, FIRST, SCREEN, end, PLAN], "images": ["0.png", "1.png"]}
    )
    (trajectory,) = run.lake.rows(Trajectory, {"iteration": ITERATION})
    assert taught(run) == ("sft", [0, 1]) and trajectory.termination == "finished"


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A lake with a masked text of two calls, which teaches the step behind it alone."""
    calls = "Action: click(start_box='(1,2)')\nclick(start_box='(3,4)')"
    two = {"role": "assistant", "content": calls, "loss_mask": 0}
    row = {"messages": [ASKED, SCREEN, two, SCREEN, FIRST], "images": ["0.png", "1.png"]}
    run = imported(tmp_path_factory.mktemp("masked"), "trl", row)
    assert taught(run) == ("sft", [1])
    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS.names)
def test_an_export_of_a_masked_text_with_calls_teaches_the_same_steps(tmp_path: Path, masked: Run, name: str) -> None:
    out = tmp_path / "out"
    export_trajectories(masked.config, masked.lake, FORMATS.class_of(name)(), out, (ITERATION, -1), "sft")
    (tmp_path / "there").mkdir()
    assert taught(imported(tmp_path / "there", name, out)) == ("sft", [1])


@pytest.mark.parametrize("name", FORMATS.names)
def test_an_export_keeps_the_three_actions_of_a_reply_or_counts_it(tmp_path: Path, several: Run, name: str) -> None:
    form, out = FORMATS.class_of(name)(), tmp_path / "out"
    export_trajectories(several.config, several.lake, form, out, (ITERATION, -1))
    (record,) = taken(form, out)
    one = {"agentnet", "scalecua", "label-studio"}
    assert [len(step.actions) for step in record.steps] == [0 if name in one else 3, 1]
    assert record.steps[0].error == ("3 actions in one reply" if name in one else None)
    assert (form.as_text, len(form.notes)) == ((1, 1) if name in one else (0, 0))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A lake with a trajectory whose first reply has three actions."""
    calls = "Action: click(start_box='(1,2)')\n\ntype(content='a')\n\nhotkey(key='ctrl s')"
    three = {"role": "assistant", "content": calls}
    row = {"messages": [ASKED, SCREEN, three, SCREEN, FIRST], "images": ["0.png", "1.png"]}
    run = imported(tmp_path_factory.mktemp("several"), "trl", row)
    assert taught(run) == ("sft", [0, 1])
    return run


@pytest.mark.parametrize("known", [None, {"unit": "thousandths"}, {"unit": "thousandths", "trajectory": {}}])
def test_arguments_that_no_action_has_are_kept_with_the_step(tmp_path: Path, known: dict[str, Any] | None) -> None:
    reply = {"role": "assistant", "content": "Action: wait(why=5)"}
    row = {"messages": [ASKED, SCREEN, reply], "images": ["0.png"]} | ({"flywheel": known} if known else {})
    run = imported(tmp_path, "ui-tars", row)
    (trajectory,) = run.lake.rows(Trajectory, {"iteration": ITERATION})
    (step,) = run.lake.read("steps", where={"iteration": ITERATION}).to_pylist()
    assert (step["unused_arguments"], trajectory.n_steps) == ("why=5", 1)
