"""What people decided elsewhere is looked at before a row of an import is written."""

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from curation.converters.exchanged import (
    About,
    Exchanged,
    ExchangedStep,
    ImportedReview,
    RecordPlace,
    RecordRefused,
    StepAbout,
)
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS
from schemas.action import Click
from schemas.failure import UsageError
from tasks.exchange.importing import (  # pyright: ignore[reportPrivateUsage]
    Request,
    _error_of,
    _formats_of,
    _read,
    _refusal,
    check_import,
)
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import make_place
from tests.unit.curation.converters.records import picture, written

PLACE = RecordPlace("answers.json", 3)


def record(boundary: str | None = None, **changes: str) -> Exchanged:
    fields = {"person": "ada+lab@example.org", "decision": "accept", "note": "", **changes}
    decided = ImportedReview(None, action=None, thought=None, **fields)  # pyright: ignore[reportArgumentType]
    return Exchanged(
        "a", "Open it.", (), decided=(decided,), about=About.model_validate({"failure_boundary": boundary})
    )


def test_a_decision_of_anybody_with_an_address_is_taken() -> None:
    assert _refusal(record(), set(), PLACE) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (record(person="ada/bob"), "`person`"),
        (record(note="x" * 5_000), "`note`"),
        (record(boundary="sandbox"), "`decision`"),
    ],
)
def test_one_that_no_lake_keeps_is_refused_by_file_line_and_field(found: Exchanged, said: str) -> None:
    refused = _refusal(found, set(), PLACE)
    assert isinstance(refused, RecordRefused) and said in str(refused) and "answers.json, line 3" in str(refused)


@pytest.mark.slow
def test_a_data_set_is_read_a_record_at_a_time(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.png").write_bytes(picture(number).png)

    def peak(lines: int) -> int:
        code, seen = "pyautogui.click(x=0.5, y=0.5)", "x" * 20_000
        with (tmp_path / "theirs.jsonl").open("w") as file:
            for at in range(lines):
                entry = {"index": 0, "image": f"{at % 40}.png", "value": {"code": code, "observation": f"{at}{seen}"}}
                file.write(json.dumps({"task_id": at, "instruction": "Open it.", "traj": [entry]}) + "\n")
        gc.collect()
        tracemalloc.start()
        found = sum(isinstance(one, Exchanged) for _, one in _read(Request(format="agentnet", path=tmp_path), None))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == lines
        return most

    peak(5)
    assert peak(200) < peak(50) + 1_000_000  # 150 more records have 3 MB; some await the collection of cycles


SHOT = "0.png"
CHAT = {"messages": [{"role": "user", "content": "<image>Go"}, {"role": "assistant", "content": "Action: wait()"}]}
AGENTNET = {
    "task_id": 1,
    "instruction": "Go",
    "traj": [{"image": SHOT, "value": {"code": "pyautogui.click(0.5, 0.5)"}}],
}


@pytest.mark.parametrize(
    ("record", "format_name", "others"),
    [
        (AGENTNET, "scalecua", ["agentnet"]),
        (AGENTNET, "trl", ["agentnet"]),
        ({**CHAT, "images": [SHOT]}, "atif", ["ui-tars", "trl"]),
        ({**CHAT, "images": [SHOT]}, "label-studio", ["ui-tars", "trl"]),
        ({**CHAT, "images": [SHOT]}, "trl", []),  # the unit is missing, and the format is right
        ({**AGENTNET, "traj": []}, "agentnet", []),
        ({"a": 1}, "verl", []),
    ],
)
def test_a_file_of_another_format_is_named(
    tmp_path: Path, record: dict[str, Any], format_name: str, others: list[str]
) -> None:
    (tmp_path / SHOT).write_bytes(picture(0).png)
    file = tmp_path / "theirs.jsonl"
    file.write_text(f"{json.dumps(record)}\n{json.dumps(record)}\n")
    assert _formats_of(Request(format=format_name, path=file)) == others


def test_the_other_format_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    refused = [RecordRefused(RecordPlace("theirs.jsonl", 1), "image", "it is missing")]
    sentence(_error_of(refused, ["agentnet"]), "--format agentnet", hint="refused.jsonl")


def test_a_check_names_the_files_that_the_import_leaves_out(tmp_path: Path) -> None:
    step = ExchangedStep(picture(0), actions=(Click(x=0.5, y=0.5),))
    folder = written(FORMATS.class_of("agentnet")(), [Exchanged("t", "Go.", (step,), True)], tmp_path / "out")
    config, request = make_place(tmp_path).config, Request(format="agentnet", path=folder)
    whole = check_import.fn(config, request)
    assert whole.name.startswith("import:agentnet:") and whole.left_out == ()
    (folder / "more").mkdir()
    (folder / "more/e.parquet").write_bytes(b"PAR1")
    more = check_import.fn(config, request)
    assert (more.name, [file for file, _ in more.left_out]) == (whole.name, ["more/e.parquet"])


def test_a_folder_of_another_format_is_named_where_it_has_no_file_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    step = ExchangedStep(picture(0), actions=(Click(x=0.5, y=0.5),))
    folder = written(FORMATS.class_of("trl")(), [Exchanged("t", "Go.", (step,), True)], tmp_path / "out")
    config = make_place(tmp_path).config
    with sentence.raises(UsageError, "--format trl"):
        check_import.fn(config, Request(format="agentnet", path=folder))


def lengths(form: str, path: Path) -> list[int]:
    return [
        len(one.steps) for _, one in FORMATS.class_of(form)().read(ImportSource(path)) if isinstance(one, Exchanged)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS.names)
@pytest.mark.parametrize("targets", [(None, None), (True, True), (False, True)])
def test_an_export_in_any_other_format_is_refused_by_its_name_or_read_with_the_same_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, targets: tuple[bool | None, bool | None]
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    config = make_place(tmp_path).config
    records = [
        Exchanged(f"t{at}", "Go.", steps(length, target), True, about=About(lake="theirs", trajectory_id=f"t{at}"))
        for at, (length, target) in enumerate(zip((2, 3), targets, strict=True))
    ]
    folder = written(FORMATS.class_of(name)(), records, tmp_path / "out")
    assert lengths(name, folder) == [2, 3]
    hinted = FORMATS.class_of(name).read_by or name
    for other in set(FORMATS.names) - {name}:
        try:
            check_import.fn(config, Request(format=other, path=folder))
        except UsageError as refused:
            assert f"looks like {hinted}: give `--format {hinted}`" in str(refused), other
        else:
            assert lengths(other, folder) == [2, 3], other


def steps(length: int, target: bool | None) -> tuple[ExchangedStep, ...]:
    about, action = StepAbout(target=target), Click(x=0.5, y=0.5)
    return tuple(ExchangedStep(picture(at), "So.", (action,), about=about) for at in range(length))


def test_a_row_of_one_step_is_none_of_trl_and_its_refusal_names_the_step(tmp_path: Path, sentence: Sentences) -> None:
    record = Exchanged("t", "Go.", steps(2, None), True, about=About(lake="theirs", trajectory_id="t"))
    folder = written(FORMATS.class_of("ui-tars")(), [record], tmp_path)
    found = [str(one) for _, one in FORMATS.class_of("trl")().read(ImportSource(folder))]
    assert len(found) == 2
    sentence(found[1], "flywheel.step", "ui-tars")
