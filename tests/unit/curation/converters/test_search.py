"""An import reads the records of a folder and of those below it, and names the files that it leaves out."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from curation.converters.agentnet import AgentNet
from curation.converters.exchanged import Exchanged, ExchangedStep, RecordRefused
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS, Format
from curation.converters.search import notes_of
from schemas.action import Click
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, read, taken, written

Put = Callable[[str, str | bytes], None]


def line(name: str, image: str = "a.png") -> str:
    entry = {"index": 0, "image": image, "value": {"code": "pyautogui.click(x=0.5, y=0.5)"}}
    return json.dumps({"task_id": name, "instruction": "Do it.", "traj": [entry]}) + "\n"


def record(number: int) -> Exchanged:
    step = ExchangedStep(picture(number), "So.", (Click(x=0.1 * number, y=0.2),))
    return Exchanged(f"r{number}", f"Do {number}.", (step,), True)


@pytest.fixture
def data(tmp_path: Path) -> Put:
    """Returns a function that writes a file of the data, next to a picture in its folder."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.png").write_bytes(picture(1).png)

    def put(name: str, content: str | bytes) -> None:
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    return put


def found(form: Format, folder: Path, **of: Any) -> tuple[list[str], dict[str, str]]:
    """The names of a folder's records, and the files that were left out, with the reasons."""
    source = ImportSource(folder, **of)
    every = [one for _, one in form.read(source)]
    return [one.name for one in every if not isinstance(one, RecordRefused)], dict(source.left_out)


def test_records_below_a_folder_are_read_in_order_and_json_lines_by_both_suffixes(data: Put, tmp_path: Path) -> None:
    for name in ("more/deep/z.jsonl", "more/e.ndjson", "d.jsonl", "D2.JSONL", "also/f.jsonl"):
        data(name, line(name))
    names, left_out = found(AgentNet(), tmp_path / "data")
    assert names == ["D2.JSONL", "d.jsonl", "also/f.jsonl", "more/e.ndjson", "more/deep/z.jsonl"] and not left_out


def test_a_record_s_picture_is_that_of_its_own_folder_before_that_of_the_import(data: Put, tmp_path: Path) -> None:
    for number, name in enumerate(("images/s.png", "one/images/s.png", "two/s.png", "two/x.png"), 2):
        data(name, picture(number).png)
    for name, image in (("d", "s.png"), ("one/d", "images/s.png"), ("two/d", "s.png"), ("three/d", "s.png")):
        data(f"{name}.jsonl", line(name, image))
    shown = [one.steps[0].screen.sha256 for one in taken(AgentNet(), tmp_path / "data")]
    assert shown == [picture(number).sha256 for number in (2, 3, 2, 4)]
    assert [one.steps[0].screen.sha256 for one in taken(AgentNet(), tmp_path / "data" / "two")] == [picture(4).sha256]
    data("two/d.jsonl", line("up", "../one/images/s.png"))
    assert picture(3).sha256 in [one.steps[0].screen.sha256 for one in taken(AgentNet(), tmp_path / "data")]
    data("two/d.jsonl", line("up", "../../../secret.png"))
    refused = [str(one) for one in read(AgentNet(), tmp_path / "data") if isinstance(one, RecordRefused)]
    assert len(refused) == 1 and "two/d.jsonl, line 1, traj.0.image" in refused[0] and "leads out" in refused[0]


@pytest.mark.parametrize(
    "name",
    [
        ".git/d.jsonl",
        "._d.jsonl",
        "a/._d.jsonl",
        "a/.cache/d.jsonl",
        "__MACOSX/d.jsonl",
        "lake/tables/d.jsonl",
        "work/refused.jsonl",
    ],
)
def test_hidden_folders_lakes_and_the_work_folder_hold_no_records(
    data: Put, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data("lake/flywheel.json", "{}")
    data("d.jsonl", line("one"))
    data(name, "no record")
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "data" / "work"))
    assert found(AgentNet(), tmp_path / "data") == (["one"], {})


@pytest.mark.parametrize("name", ["atif", "lerobot", "label-studio", "scalecua", "ui-tars", "agentnet", "trl"])
def test_no_format_reads_hidden_copies_of_its_own_export(tmp_path: Path, name: str) -> None:
    form = FORMATS.class_of(name)()
    folder = written(form, [record(1), record(2)], tmp_path / "out")
    for hidden in (".trash", "__MACOSX", "more/.cache"):
        copytree(folder, tmp_path / "kept" / hidden)
    before, _ = found(form, folder)
    copytree(tmp_path / "kept", folder, dirs_exist_ok=True)
    for file in [one for one in folder.rglob("*") if one.is_file()]:
        file.with_name(f"._{file.name}").write_bytes(b"\0\5\x16\7 no record")
    assert before and found(form, folder) == (before, {})


@pytest.mark.parametrize(
    ("form", "name", "why"),
    [
        ("agentnet", "f.parquet", "read are"),
        ("agentnet", "more/f.csv", "read are"),
        ("agentnet", "f.json", "read are"),
        ("agentnet", "f.jsonlines", "read are"),
        ("agentnet", "f.csv.gz", "plain files"),
        ("agentnet", "more.zip", "plain files"),
        ("agentnet", "d.jsonl.gz", "plain files"),
        ("agentnet", "images/f.jsonl", "folder of images"),
        ("agentnet", "shots/f.jsonl", "folder of images"),
        ("agentnet", "meta.json", ""),
        ("agentnet", "images/f.json", ""),
        ("agentnet", "README.md", ""),
        ("agentnet", "more/b.png", ""),
    ],
)
def test_a_file_that_looks_like_records_and_is_not_read_is_named_with_the_reason(
    data: Put, form: str, name: str, why: str, tmp_path: Path
) -> None:
    data("d.jsonl", line("one"))
    for other in ("shots/b.png", name):
        data(other, b"x")
    data("shots/a.png", picture(1).png)
    names, left_out = found(FORMATS.class_of(form)(), tmp_path / "data", images=tmp_path / "data" / "shots")
    assert names == ["one"] and list(left_out) == ([name] if why else []) and why in left_out.get(name, "")


def test_links_to_folders_are_not_followed_and_named(data: Put, tmp_path: Path) -> None:
    data("d.jsonl", line("one"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/e.jsonl").write_text(line("two"))
    for name in ("linked", "images"):
        (tmp_path / "data" / name).symlink_to(tmp_path / "other", target_is_directory=True)
    (tmp_path / "data" / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "data" / "e.jsonl").symlink_to(tmp_path / "other/e.jsonl")
    names, left_out = found(AgentNet(), tmp_path / "data")
    assert names == ["one", "two"]
    assert left_out == {"gone.jsonl": "a broken link", "linked": "links to folders are not followed"}


@pytest.mark.parametrize("name", ["e.jsonl.gz", "more/e.jsonl.zst", "e.NDJSON.XZ"])
def test_compressed_records_are_refused_by_name(data: Put, name: str, sentence: Sentences, tmp_path: Path) -> None:
    data("d.jsonl", line("one"))
    data(name, gzip.compress(line("two").encode()))
    with sentence.raises(UsageError, name, hint="Decompress it"):
        read(AgentNet(), tmp_path / "data")
    data("images/pictures.json.gz", b"x")
    (tmp_path / "data" / name).unlink()
    assert found(AgentNet(), tmp_path / "data")[0] == ["one"]


def test_a_folder_without_records_names_what_it_has(data: Put, sentence: Sentences, tmp_path: Path) -> None:
    for number in range(5):
        data(f"f{number}.csv", "a,b")
    with sentence.raises(UsageError, "only f0.csv, f1.csv, f2.csv and 2 more files"):
        read(AgentNet(), tmp_path / "data")


@pytest.mark.parametrize("name", FORMATS.names)
def test_an_export_leaves_no_file_out_and_is_read_below_another_folder(name: str, tmp_path: Path) -> None:
    form = FORMATS.class_of(name)()
    for number in (1, 2):
        written(form, [record(number)], tmp_path / "all" / f"of{number}")
    for folder, count in (("all/of1", 1), ("all", 2)):
        names, left_out = found(form, tmp_path / folder)
        assert len(names) == count and not left_out


def test_formats_that_search_by_themselves_name_what_they_leave_out(tmp_path: Path) -> None:
    for name in ("atif", "lerobot"):
        written(FORMATS.class_of(name)(), [record(1)], tmp_path / name)
        for other in ("d.jsonl", "more/e.parquet"):
            (tmp_path / name / "more").mkdir(exist_ok=True)
            (tmp_path / name / other).write_bytes(b"x")
        assert list(found(FORMATS.class_of(name)(), tmp_path / name)[1]) == ["d.jsonl", "more/e.parquet"]
    document = next((tmp_path / "atif/trajectories").iterdir())
    (tmp_path / "atif/more/other.json").write_bytes(document.read_bytes())
    (tmp_path / "atif/more/result.json").write_text("{}")
    left_out = found(FORMATS.class_of("atif")(), tmp_path / "atif")[1]
    assert list(left_out) == ["d.jsonl", "more/e.parquet", "more/other.json"]


def test_an_empty_file_next_to_records_is_named(data: Put, tmp_path: Path) -> None:
    data("a.jsonl", "")
    data("d.jsonl", line("one"))
    data("a.png", picture(1).png)
    names, left_out = found(FORMATS.class_of("agentnet")(), tmp_path / "data")
    assert (names, left_out) == (["one"], {"a.jsonl": "it is empty"})


def test_notes_name_the_first_files_of_each_reason(sentence: Sentences) -> None:
    left_out = [*((f"f{number}.csv", "read are *.jsonl") for number in range(5)), ("more", "links are not followed")]
    sentence("\n".join(notes_of(left_out)))
    assert notes_of([]) == []
