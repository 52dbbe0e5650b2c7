"""`flywheel data export` as it is typed: every format, a part of the lake, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.commands.data import explained, export, import_, in_words, rejections
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS.names)
def test_every_format_is_written_from_a_lake_and_read_again(
    place: Place, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    out = tmp_path / "out"
    export(name, out, config=place.file, iterations="0:2", route="sft", as_json=True)
    said = json.loads(capsys.readouterr().out)
    count = place.lake.count("verdicts", {"iteration": [0, 1], "gate": "route", "route": "sft"})
    assert (said["trajectories"], said["format"], said["directory"]) == (count, name, str(out))
    assert said["routes"] == {"sft": count}
    records = [one for _, one in FORMATS.class_of(name)().read(ImportSource(out))]
    assert len(records) == count > 0
    assert {one.about.lake for one in records if not isinstance(one, Exception)} == {place.lake.lake_id}
    with sentence.raises(UsageError):
        export(name, out, config=place.file)


def test_an_export_says_of_which_routes_it_is_and_warns_where_failures_would_be_trained_on(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    export("trl", tmp_path / "all", config=place.file)
    said = capsys.readouterr()
    assert "none " in said.out and "sft " in said.out and "`--route sft`" in said.err
    sentence("\n".join(said.err.splitlines()[1:]))
    export("trl", tmp_path / "accepted", config=place.file, route="sft")
    assert "route" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS.names)
def test_of_every_format_an_export_names_what_was_not_accepted(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: Sentences
) -> None:
    export(name, tmp_path / "kept", config=place.file, as_json=True)
    said = capsys.readouterr()
    routes = json.loads(said.out[said.out.index("{") :])["routes"]
    others = sum(routes.values()) - routes["sft"]
    assert others > 0
    sentence.lines(said.err, others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "nothing"}, "there is no 'nothing'"),
        ({"name": "schemas.action:Click"}, "not a subclass of curation.converters.format.Format"),
        ({"unit": "pixels"}, "`--unit pixels`: agentnet has fraction"),
        ({"dialect": "point"}, "`--dialect point`: agentnet has none"),
        ({"route": "nowhere"}, "`--route nowhere`"),
        ({"iterations": "2:1"}, "`--iterations 2:1`"),
        ({"iterations": "70:80"}, "no trajectory to export"),
        ({"to": Path("/proc/x")}, r"`--to`: /proc/x cannot be made: .*\. Name a folder"),
        ({"to": Path("/proc/x/y")}, "`--to`: /proc/x/y cannot be made"),
        ({"to": Path("/dev/null/x")}, "`--to`: /dev/null/x cannot be made"),
        ({"to": Path("x" * 300)}, "`--to`: x+ cannot be made: File name too long"),
    ],
)
def test_what_an_export_cannot_do_is_refused_and_nothing_is_left(
    place: Place, tmp_path: Path, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        export(**{"name": "agentnet", "to": tmp_path / "out", "config": place.file, **asked})
    assert not list(tmp_path.iterdir())


def test_an_import_of_what_is_not_there_is_refused_before_a_server_starts(
    place: Place, tmp_path: Path, sentence: Sentences
) -> None:
    with sentence.raises(UsageError):
        import_(tmp_path / "none", "agentnet", config=place.file)
    with pytest.raises(UsageError, match="`--unit inches`"):
        import_(tmp_path, "agentnet", config=place.file, unit="inches")


@pytest.mark.slow
def test_an_export_is_redacted_by_default_and_as_it_is_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    fresh = make_place(tmp_path)
    (row, *_) = fresh.lake.read("trajectories", where={"iteration": 0, "task_id": "fake/two-steps"}).to_pylist()
    fresh.lake.upsert("trajectories", [{**row, "instruction": "Write to ada@example.org"}])
    (step,) = fresh.lake.read("steps", where={"trajectory_id": row["trajectory_id"]}).to_pylist()
    seen = json.dumps([["ada@example.org", "text", [0.1, 0.1, 0.9, 0.2], 0, ""]])
    fresh.lake.upsert("steps", [{**step, "elements": seen}])
    export("agentnet", tmp_path / "out", config=fresh.file, as_json=True)
    said = capsys.readouterr()
    found = json.loads(said.out[said.out.index("{") :])["redacted"]
    assert (found["texts"], found["regions"], found["pictures"]) == ({"e-mail": 1}, 1, 1)
    sentence(said.err)
    assert "ada@" not in (tmp_path / "out/agentnet.jsonl").read_text()
    export("agentnet", tmp_path / "whole", config=fresh.file, redact=False)
    assert "ada@example.org" in (tmp_path / "whole/agentnet.jsonl").read_text()
    with pytest.raises(UsageError, match=r"label-studio comes home"):
        export("label-studio", tmp_path / "answers", config=fresh.file, redact=True)


def test_an_import_explains_its_routes_and_how_to_change_them(sentence: Sentences) -> None:
    done = {"iteration": -2, "routes": {"ct": 20, "rl": 1, "sft": 3}, "without_outcome": 20}
    sentence("\n".join(explained(done)))
    sentence("\n".join(explained({"iteration": -3, "routes": {"quarantine": 2}, "without_outcome": 0})))
    assert explained({"iteration": -2, "routes": {"sft": 3}, "without_outcome": 0}) == []
    sentence("\n".join(in_words({"accepted": 19, "iterations": [-2], "rejected": {"duplicates": 1}})))
    assert in_words(None) == [] == in_words({"accepted": 0, "iterations": [], "rejected": {}})


def test_an_import_names_the_gates_that_rejected_trajectories() -> None:
    assert rejections({"transient": 3, "loops": 4}) == " (loops 4, transient 3)" and rejections({}) == ""
