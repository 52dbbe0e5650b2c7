"""The gate names the rows that are wrong, and never mistakes its own trouble for theirs."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from schemas.table import Expectation
from schemas.tables import TABLES
from schemas.tables.quality import QualityResult
from storage.blobs import Blobs
from storage.lake import Lake
from storage.objects import open_store
from storage.quality import gate
from storage.quality.docs import publish_docs, read_page, site_names
from storage.quality.gate import expectations_of, name_of, rows_of, run_gate

WRITTEN = ("trajectories", "steps", "screenshots")
PICTURE = hashlib.sha256(b"png").hexdigest()


@pytest.fixture
def sound(lake: Lake, row) -> Lake:
    lake.append("screenshots", [row("screenshots", sha256=PICTURE)])
    lake.append("trajectories", [row("trajectories", trajectory_id=f"t{i}", seed=i) for i in range(3)])
    lake.append("steps", [row("steps", trajectory_id=f"t{i}", screenshot=PICTURE) for i in range(3)])
    return lake


def _failed(results: list[QualityResult]) -> dict[str, QualityResult]:
    return {f"{each.table}.{each.expectation}": each for each in results if not each.success}


def test_sound_data_passes_every_expectation_of_every_table(sound: Lake, tmp_path: Path) -> None:
    results = run_gate(sound, 1, TABLES, tmp_path / "docs")
    index = (tmp_path / "docs/iteration-0001/index.html").read_text()
    assert f'<b>all tables</b></td><td class="n">{len(results)}</td>' in index  # as the page Quality counts
    assert "A table without a link has no row of this iteration" in index
    assert _failed(results) == {}
    assert {each.table for each in results} == set(TABLES)
    assert sound.append("quality", results) == len(results)


def test_bad_rows_are_named_by_their_keys(sound: Lake, row, tmp_path: Path) -> None:
    sound.append("trajectories", [row("trajectories", trajectory_id="bad", reward=7.0, n_steps=0, seed=1_000_000)])
    failed = _failed(run_gate(sound, 1, WRITTEN, tmp_path))
    assert set(failed) == {
        "trajectories.ExpectColumnValuesToBeBetween(reward)",
        "trajectories.ExpectColumnValuesToBeBetween(seed)",
    }
    for result in failed.values():
        assert (result.unexpected, result.error, result.severity) == (1, None, "critical")
        assert json.loads(result.examples) == [{"trajectory_id": "bad"}]


def test_a_warning_is_told_from_a_critical_failure(sound: Lake, row, tmp_path: Path) -> None:
    sound.append("trajectories", [row("trajectories", trajectory_id="slow", n_steps=0, wall_s=9999.0)])
    (result,) = _failed(run_gate(sound, 1, WRITTEN, tmp_path)).values()
    assert result.severity == "warning"


def test_missing_steps_and_missing_pictures_are_found(sound: Lake, row, tmp_path: Path) -> None:
    sound.append("trajectories", [row("trajectories", trajectory_id="short", n_steps=2)])
    sound.append("steps", [row("steps", trajectory_id="short", screenshot="b" * 64, next_screenshot="c" * 64)])
    failed = _failed(run_gate(sound, 1, WRITTEN, tmp_path))
    assert set(failed) == {
        "trajectories.ExpectColumnPairValuesToBeEqual(n_steps, stored_steps)",
        "steps.ExpectColumnValuesToBeInSet(screenshot_known)",
        "steps.ExpectColumnValuesToBeInSet(next_screenshot_known)",
    }
    keys = json.loads(failed["steps.ExpectColumnValuesToBeInSet(screenshot_known)"].examples)
    assert keys == [{"trajectory_id": "short", "step": 0}]


def test_a_picture_in_the_place_of_another_is_found(sound: Lake, row, tmp_path: Path) -> None:
    sound.upsert("screenshots", [row("screenshots", sha256=PICTURE, png=b"gnp")])
    failed = _failed(run_gate(sound, 1, WRITTEN, tmp_path))
    result = failed.pop("screenshots.ExpectColumnValuesToBeInSet(named_by_content)")
    assert not failed and (result.unexpected, result.severity) == (1, "critical")
    assert json.loads(result.examples) == [{"sha256": PICTURE, "trajectory_id": "t0"}]


def test_a_key_that_somebody_else_wrote_twice_is_found(sound: Lake, row, tmp_path: Path) -> None:
    twice = TABLES["steps"].arrow([row("steps", trajectory_id="t0")])
    write_deltalake(f"{sound.uri}/tables/steps", twice, mode="append")
    failed = _failed(run_gate(sound, 1, ["steps"], tmp_path))
    result = failed["steps.ExpectCompoundColumnsToBeUnique(trajectory_id, step)"]
    assert result.unexpected == 2
    assert json.loads(result.examples)[0] == {"trajectory_id": "t0", "step": 0}


def test_other_iterations_are_left_out(sound: Lake, row, tmp_path: Path) -> None:
    sound.append("trajectories", [row("trajectories", trajectory_id="old", iteration=2, reward=7.0, n_steps=0)])
    assert _failed(run_gate(sound, 1, ["trajectories"], tmp_path)) == {}


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("ExpectColumnValuesToBeBetween", {"column": "policy", "min_value": 0, "max_value": 1}),
        ("ExpectNoSuchThing", {"column": "policy"}),
    ],
)
def test_a_check_that_breaks_is_a_gate_error_and_not_bad_data(
    sound: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, arguments: dict[str, object]
) -> None:
    broken = Expectation(kind=kind, arguments=arguments, because="nobody can check this")
    contract = replace(TABLES["trajectories"], expectations=(broken,))
    monkeypatch.setitem(gate.TABLES, "trajectories", contract)
    failed = _failed(run_gate(sound, 1, ["trajectories", "steps"], tmp_path))
    result = failed[f"trajectories.{kind}(policy)"]
    assert result.error
    assert result.unexpected == 0
    assert not any(name.startswith("steps") for name in failed)


def test_data_docs_are_built_and_only_the_last_are_kept(sound: Lake, row, tmp_path: Path) -> None:
    sound.append("policies", [row("policies")])
    for iteration in (1, 2, 3):
        run_gate(sound, iteration, ["policies", "screenshots"], tmp_path / "docs", keep=2)
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["iteration-0002", "iteration-0003"]
    assert (tmp_path / "docs" / "iteration-0003" / "index.html").is_file()
    assert (tmp_path / "docs" / "iteration-0003" / "policies.html").is_file()
    run_gate(sound, 1, ["policies"], tmp_path / "docs", keep=2)
    assert (tmp_path / "docs" / "iteration-0001" / "index.html").is_file()  # whoever asked for it can read it
    assert not (tmp_path / "docs" / "iteration-0003" / "screenshots.html").exists()  # it has no rows of iteration 3
    assert sum(path.stat().st_size for path in (tmp_path / "docs").rglob("*")) < 100_000


def test_pages_hold_no_outside_address_no_script_and_hostile_values_as_text(sound: Lake, row, tmp_path: Path) -> None:
    hostile = "</td><script src='https://evil.example/x.js'></script><img src=x onerror=alert(1)>"
    bad = row("trajectories", trajectory_id=hostile, failure_boundary=hostile, n_steps=0, replayed=0)
    sound.append("trajectories", pa.Table.from_pylist([bad], TABLES["trajectories"].schema))
    run_gate(sound, 1, ["trajectories"], tmp_path)
    text = (tmp_path / "iteration-0001" / "trajectories.html").read_text()
    assert "1 unexpected values found. 100% of 4 total rows." in text and "n_steps" in text
    for never in ("<script", "<img", "<link", "src=", "https://great", "unpkg", 'href="http', "onerror=alert(1)>"):
        assert never not in text.replace("&lt;img src=x onerror=alert(1)&gt;", "")
    index = (tmp_path / "iteration-0001" / "index.html").read_text()
    assert 'href="trajectories.html"' in index and "http" not in index.replace("http-equiv", "")


def test_pages_link_to_each_other_and_have_no_part_without_content(sound: Lake, row, tmp_path: Path) -> None:
    bad = row("trajectories", trajectory_id="bad", n_steps=0, replayed=0, failure_boundary="nowhere")
    sound.append("trajectories", pa.Table.from_pylist([bad], TABLES["trajectories"].schema))
    run_gate(sound, 1, ["trajectories", "steps"], tmp_path)
    assert site_names(sound, tmp_path) == ["iteration-0001"]
    pages = {path.name: path.read_text() for path in (tmp_path / "iteration-0001").iterdir()}
    assert pages["index.html"].index("trajectories.html") < pages["index.html"].index("steps.html")  # failed first
    for name, text in pages.items():
        links = re.findall(r'href="([^"]+)"', text)
        assert links and set(links) <= set(pages), name
        assert "<a>" not in text
        for dead in ("Actions", "Validation Filter", "Table of Contents", "Show more info", "__none__", "Batch Spec"):
            assert dead not in text, (name, dead)
    text = pages["trajectories.html"]
    assert 'href="steps.html"' in text and "<b>trajectories</b>" in text and 'class="bad">✗' in text
    assert 'class="good">✓' in pages["steps.html"] and 'href="trajectories.html" class="bad"' in pages["steps.html"]
    assert read_page(sound, tmp_path, "iteration-0001", "steps.html") == pages["steps.html"].encode()
    for site, page in (("iteration-0002", "index.html"), ("..", "lake.html"), ("iteration-0001", "../x.html")):
        assert read_page(sound, tmp_path, site, page) is None


def test_docs_of_a_lake_in_an_object_store_are_published_beside_it(sound: Lake, row, tmp_path: Path) -> None:
    store = open_store("memory://quality-docs")

    elsewhere: Any = SimpleNamespace(blobs=Blobs(store))
    sound.append("policies", [row("policies")])
    for iteration in (1, 2, 3):
        run_gate(sound, iteration, ["policies"], tmp_path)
        at = publish_docs(elsewhere, tmp_path, iteration, keep=2)
    assert at == store.path("data_docs/iteration-0003/index.html")
    assert site_names(elsewhere, tmp_path / "none") == ["iteration-0002", "iteration-0003"]
    assert b"policies" in (read_page(elsewhere, tmp_path / "none", "iteration-0003", "index.html") or b"")
    assert read_page(elsewhere, tmp_path / "none", "iteration-0001", "index.html") is None
    assert sorted(store.sizes("data_docs")) == [
        f"data_docs/iteration-000{n}/{page}.html" for n in (2, 3) for page in ("index", "policies")
    ]


def test_pictures_are_not_loaded_into_the_gate(sound: Lake) -> None:
    with rows_of(sound, TABLES["screenshots"], 1) as connection:
        assert connection.execute("SELECT png FROM rows").fetchall() == [(3,)]


def test_no_two_expectations_of_a_table_share_a_name() -> None:
    for contract in TABLES.values():
        names = [name_of(each) for each in expectations_of(contract)]
        assert len(names) == len(set(names))
