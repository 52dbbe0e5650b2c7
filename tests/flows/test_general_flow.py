"""General questions about images: mixed into training, measured before and after, and refused while they are wrong."""

import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from apps.commands.status import status_of, view
from apps.report.build import build_report
from curation.intervals import paired
from flows.flywheel import flywheel
from models.vlm import VlmPolicy
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.annotation import Annotation
from schemas.tables.evaluation import Evaluation
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.preflight.preflight import require_values
from tasks.shared.general import GeneralCheck, check_general, general_checks, newest_version, store_general
from tests.fixtures.sentences import Sentences

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 60), "blue": (40, 60, 220), "white": (250, 250, 250)}
IMAGES, FIRST = 24, "policy-0000"


def picture(number: int) -> bytes:
    """A plain picture of a colour; no two are the same."""
    made = Image.new("RGB", (64, 48), [*COLOURS.values()][number % len(COLOURS)])
    made.putpixel((0, 0), (number, number, number))
    made.save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def rows(folder: Path) -> list[dict[str, Any]]:
    """Questions about pictures that are written into a folder."""
    (folder / "pictures").mkdir(exist_ok=True)
    for number in range(IMAGES):
        (folder / "pictures" / f"{number}.png").write_bytes(picture(number))
    names = [*COLOURS]
    return [
        {"image": f"pictures/{number}.png", "question": "Which colour is it?", "answer": names[number % len(names)]}
        for number in range(IMAGES)
    ]


def written(folder: Path, given: list[dict[str, Any]]) -> Path:
    path = folder / "vqa.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in given))
    return path


def with_general(config: Config, path: Path, share: float = 0.5, **keys: Any) -> Config:
    general = config.general.model_copy(update={"samples": str(path), "held_out": 0.4, **keys})
    train = config.train.model_copy(update={"general": share})
    return config.model_copy(update={"general": general, "train": train})


@pytest.mark.slow
def test_questions_are_trained_on_and_measured_before_and_after(small: Config, tmp_path: Path) -> None:
    config = with_general(small, written(tmp_path, rows(tmp_path)))
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    stored = lake.rows(Annotation, {"kind": ["general", "general_held_out"]})
    assert len(stored) == IMAGES
    sides = {kind: {one.after for one in stored if one.kind == kind} for kind in ("general", "general_held_out")}
    assert all(sides.values()) and not sides["general"] & sides["general_held_out"]
    measured = lake.rows(Evaluation, {"suite": ["general"]})
    by_policy = {
        name: sum(one.policy_version == name for one in measured) for name in ("policy-initial", "policy-0000")
    }
    assert set(by_policy.values()) == {len(sides["general_held_out"])}
    assert all(one.iteration < 1 and one.n_steps == 0 for one in measured)
    (check,) = general_checks(lake).values()
    assert (check.parent, check.questions) == ("policy-initial", len(sides["general_held_out"]))
    printed = "\n".join(str(one) for one in view(lake).renderables)
    assert f"policy-0000: {check.text}" in printed and f"({check.questions} question" in check.text
    assert status_of(lake)["general"]["policy-0000"]["questions"] == check.questions
    report = build_report(config).read_text()
    assert "General questions" in report and check.interval in report
    (event,) = lake.rows(Promotion)
    assert event.reason.endswith(check.text)


@pytest.mark.slow
def test_the_small_policy_learns_the_questions_that_are_mixed_in(small: Config, tmp_path: Path) -> None:
    train = small.train.model_copy(update={"steps_first": 150, "batch": 8})
    config = with_general(small.model_copy(update={"train": train}), written(tmp_path, rows(tmp_path)), 0.9)
    flywheel(config, iterations=1)
    (check,) = general_checks(Lake.open(config.lake)).values()
    assert check.before == 0.0 and check.after > 0.5, check.text


@pytest.mark.slow
@pytest.mark.parametrize("on_drop", ["report", "reject"])
def test_a_policy_that_forgets_is_reported_or_rejected(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_drop: str
) -> None:
    def answer(policy: VlmPolicy, questions: list[Any]) -> list[str]:
        right = "a red one" if policy.version == "policy-0000" else "red"
        return [right] * len(questions)

    monkeypatch.setattr(VlmPolicy, "answer", answer)
    given = [{**row, "answer": "Red."} for row in rows(tmp_path)]
    config = with_general(small, written(tmp_path, given), 0.0, on_drop=on_drop)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    (check,) = general_checks(lake).values()
    assert check.forgets and "it forgets: the drop is more than `general.max_drop` 0.05" in check.text
    (event,) = lake.rows(Promotion)
    assert check.text in event.reason
    rolled_out = lake.rows(Evaluation, {"policy_version": "policy-0000", "suite": ["suite"]})
    assert (event.decision == "reject" and not rolled_out) if on_drop == "reject" else rolled_out


def changed(before: Sequence[bool], after: Sequence[bool]) -> GeneralCheck:
    """The comparison of answers to the same questions."""
    new, old = ({("general", at): right for at, right in enumerate(side)} for side in (after, before))
    found = paired(new, old).interval
    return GeneralCheck("parent", found.n, mean(before), mean(after), found.low, found.high, 0.05)


@pytest.mark.parametrize("questions", [5, 20, 50, 200])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.15])
@pytest.mark.parametrize("drop", [0.0, 0.05])
def test_a_training_that_drops_no_more_than_the_bound_is_seldom_called_forgetting(
    questions: int, share: float, drop: float
) -> None:
    chance, alarms, trials = random.Random(0), 0, 1000
    for _ in range(trials):
        draws = [chance.random() for _ in range(questions)]
        before = [draw >= share for draw in draws]
        after = [draw < share or draw >= 2 * share + drop for draw in draws]
        alarms += changed(before, after).forgets
    assert alarms <= 0.05 * trials


def test_the_number_of_questions_that_would_decide_is_named() -> None:
    before, after = [True] * 20, [False] * 3 + [True] * 17
    check = changed(before, after)
    assert check.undecided and check.needed is not None and check.needed > 20
    assert f"too few questions to compare the drop with `general.max_drop` 0.05: about {check.needed:,}" in check.text
    times = -(-check.needed // 20) + 1
    assert changed(before * times, after * times).forgets
    same = changed(before * 10, before * 10)
    assert not same.undecided and same.needed is None and "no drop of more than" in same.text


def test_a_changed_file_is_a_new_version_and_the_same_file_is_stored_once(small: Config, tmp_path: Path) -> None:
    given = rows(tmp_path)
    config = with_general(small, written(tmp_path, given))
    lake = Lake.open(config.lake, create=True)
    store_general(config, lake, 0)
    first = newest_version(lake)
    store_general(config, lake, 1)
    assert newest_version(lake) == first and lake.count("annotations", {}) == IMAGES
    written(tmp_path, given[:-1])
    store_general(config, lake, 1)
    written(tmp_path, given)
    store_general(config, lake, 2)
    assert [one[0] for one in (first, newest_version(lake))] == ["1", "3"]
    assert lake.count("screenshots", {}) == IMAGES


def test_a_parquet_file_holds_paths_bytes_or_structs(small: Config, tmp_path: Path) -> None:
    given = rows(tmp_path)
    for image in (
        [row["image"] for row in given],
        [picture(number) for number in range(IMAGES)],
        [{"bytes": picture(number), "path": None} for number in range(IMAGES)],
    ):
        columns = {name: [row[name] for row in given] for name in ("question", "answer")}
        pq.write_table(pa.table({"image": image, **columns}), tmp_path / "vqa.parquet")
        found = check_general(with_general(small, tmp_path / "vqa.parquet"))
        assert "to train on" in found


BROKEN: dict[str, dict[str, Any]] = {
    "no image": {"image": ""},
    "missing image": {"image": "pictures/none.png"},
    "no picture": {"image": "vqa.jsonl"},
    "empty answer": {"answer": " "},
    "no answer": {"answer": None},
    "a number": {"answer": 3},
    "empty question": {"question": ""},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_faulty_row_is_refused_before_anything_is_spent(
    small: Config, tmp_path: Path, case: str, sentence: Sentences
) -> None:
    given = rows(tmp_path)
    given[2] |= BROKEN[case]
    config = with_general(small, written(tmp_path, given))
    with sentence.raises(UsageError, "row 3", hint="docs/general.md"):
        flywheel(config, iterations=1)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("case", ["no rows", "one side", "no file", "another kind", "no column", "no JSON"])
def test_a_file_that_cannot_be_used_is_refused(small: Config, tmp_path: Path, case: str, sentence: Sentences) -> None:
    given, path = rows(tmp_path), tmp_path / "vqa.jsonl"
    match case:
        case "no rows":
            path.write_text("\n")
        case "one side":
            written(tmp_path, given[:1] * 3)
        case "another kind":
            path = tmp_path / "vqa.csv"
            path.write_text("image,question,answer\n")
        case "no column":
            path = tmp_path / "vqa.parquet"
            pq.write_table(pa.table({"image": ["a"], "question": ["b"]}), path)
        case "no JSON":
            path.write_text("image\n")
        case _:
            pass
    with sentence.raises(UsageError):
        check_general(with_general(small, path))


def test_a_share_without_a_file_and_shares_above_one_are_refused(small: Config) -> None:
    alone = small.model_copy(update={"train": small.train.model_copy(update={"general": 0.2})})
    with pytest.raises(UsageError, match=r"train\.general"):
        require_values(alone)
    with pytest.raises(ValueError, match=r"perception is 0\.6, general is 0\.5: lower them to at most 1 together"):
        type(small.train).model_validate({"perception": 0.6, "general": 0.5})
