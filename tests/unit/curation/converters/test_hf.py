"""Data sets of Hugging Face's `datasets`: shards with one schema, splits, and rows that are missing or out of order."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.converters import parquet
from curation.converters.exchanged import MOST_SEED, About, Exchanged, ExchangedStep, RecordRefused
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS
from curation.converters.hf import SCHEMA, HuggingFace
from schemas.action import Click, Finished, Type
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, read, refused, taken, written

ACTIONS = (Click(x=0.25, y=0.5), Type(content="a"))


def trajectory(name: str = "t", seed: int = 3, count: int = 3) -> Exchanged:
    both = ExchangedStep(picture(1), "Both.", ACTIONS, text="Action: two", frames=(picture(2),))
    steps = (both, *(ExchangedStep(picture(at % 6), "", (Finished(content="ok"),)) for at in range(count - 1)))
    about = About(lake="l", trajectory_id=name, seed=seed, success=True, reward=1.0, route="sft", policy_version="p1")
    return Exchanged(name, "Save it.", steps, True, picture(5), about)


def rows_in(folder: Path, part: str = "steps") -> list[dict[str, Any]]:
    return [row for file in sorted((folder / part).iterdir()) for row in pq.read_table(file).to_pylist()]


def rewritten(file: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)


def test_a_step_is_a_row_with_its_screens_its_actions_and_the_outcome_of_its_trajectory(tmp_path: Path) -> None:
    first, *_, last = rows_in(written(HuggingFace(), [trajectory()], tmp_path))
    assert first["image"]["bytes"] == picture(1).png and [one["bytes"] for one in first["frames"]] == [picture(2).png]
    assert [json.loads(one)["type"] for one in first["actions"]] == ["click", "type"]
    assert (first["action_type"], first["x"], first["y"], first["n_steps"], first["target"]) == (
        "click", 0.25, 0.5, 3, True
    )  # fmt: skip
    assert (first["success"], first["reward"], first["route"], first["seed"]) == (True, 1.0, "sft", 3)
    assert first["after"] is None and last["after"]["bytes"] == picture(5).png
    (whole,) = rows_in(tmp_path, "trajectories")
    assert (whole["n_steps"], whole["first_image"]["bytes"], whole["last_image"]["bytes"]) == (
        3, picture(1).png, picture(5).png
    )  # fmt: skip
    assert taken(HuggingFace(), tmp_path) == [trajectory()]


def test_trajectories_that_measure_policies_are_a_split_of_their_own_which_no_import_reads(tmp_path: Path) -> None:
    form = HuggingFace()
    written(form, [trajectory("a"), trajectory("b", MOST_SEED)], tmp_path)
    assert [one.name for one in taken(form, tmp_path)] == ["a"]
    assert [[row["target"] for row in rows] for rows in (rows_in(tmp_path)[:3], rows_in(tmp_path)[3:])] == [
        [False] * 3, [True] * 3
    ]  # fmt: skip
    splits = [{"split": split, "path": f"steps/{split}-*.parquet"} for split in ("train", "test")]
    assert form.configs[0] == {"config_name": "steps", "default": True, "data_files": splits}
    source = ImportSource(tmp_path)
    list(form.read(source))
    assert source.left_out == [("steps/test-00000.parquet", "read are steps to train on")]


def test_shards_have_one_schema_and_small_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    monkeypatch.setattr(parquet, "SHARD_BYTES", 3 * len(picture(1).png))
    records = [replace(trajectory(f"t{number}"), after=None) for number in range(4)]
    written(HuggingFace(), records, tmp_path)
    files = sorted((tmp_path / "steps").iterdir())
    assert [file.name for file in files] == [f"train-{number:05d}.parquet" for number in range(len(files))]
    assert len(files) > 2 and len({str(pq.read_schema(file)) for file in files}) == 1
    groups = [pq.ParquetFile(file).metadata for file in files]
    assert max(one.row_group(at).num_rows for one in groups for at in range(one.num_row_groups)) == 2
    features = json.loads(pq.read_schema(files[0]).metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"} and features["frames"] == [{"_type": "Image"}]
    assert taken(HuggingFace(), tmp_path) == records


@pytest.mark.parametrize("order", [[0, 2], [1, 0, 2], [0, 1], [2]])
def test_rows_of_a_trajectory_that_are_missing_or_out_of_order_are_refused(
    order: list[int], tmp_path: Path, sentence: Sentences
) -> None:
    written(HuggingFace(), [trajectory()], tmp_path)
    file = tmp_path / "steps" / "train-00000.parquet"
    rows = rows_in(tmp_path)
    rewritten(file, [rows[at] for at in order])
    sentence(refused(HuggingFace(), tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1}, {"step": None}, {"n_steps": 0}, {"trajectory_id": ""}, {"image": None}, {"instruction": " "},
        {"flywheel": "{"}, {"frames": [None]}, {"flywheel": '{"step": 2}'},
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_cell_is_refused_with_its_file_row_and_field(
    change: dict[str, Any], tmp_path: Path, sentence: Sentences
) -> None:
    written(HuggingFace(), [trajectory(count=1)], tmp_path)
    (row,) = rows_in(tmp_path)
    rewritten(tmp_path / "steps" / "train-00000.parquet", [{**row, **change}])
    problem = refused(HuggingFace(), tmp_path)
    assert problem.startswith("steps/train-00000.parquet, row 1, ")
    sentence(problem)


def test_rows_of_others_need_no_metadata_and_their_other_columns_stay(tmp_path: Path) -> None:
    row = {"trajectory_id": "x", "step": 0, "image": {"bytes": picture(0).png}, "instruction": "Go.", "site": "a.org"}
    texts = {"actions": ['{"type":"fly"}'], "target": False}
    pq.write_table(pa.Table.from_pylist([{**row, **texts}]), tmp_path / "theirs.parquet")
    (record,) = taken(HuggingFace(), tmp_path)
    (step,) = record.steps
    assert (record.name, step.actions, step.text, step.about.target) == ("x", (), '{"type":"fly"}', False)
    assert step.error and step.extra == {"hf": {"site": "a.org"}}
    (back,) = taken(HuggingFace(), written(HuggingFace(), [record], tmp_path / "out"))
    assert back.steps == record.steps


def test_a_folder_without_steps_is_refused(tmp_path: Path, sentence: Sentences) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "other.parquet")
    with sentence.raises(UsageError):
        taken(FORMATS.class_of("hf")(), tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train-00000.parquet").write_bytes(b"PAR1 and no more")
    (one,) = read(HuggingFace(), tmp_path)
    assert isinstance(one, RecordRefused) and "train-00000.parquet" in str(one)
