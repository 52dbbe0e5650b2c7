"""The card of an exported policy: what loads it, how it was trained and measured, and under which licence it is."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from apps.commands.policies import export_policy
from common.card import front_of
from models.families.registry import name_of
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path)


def card(folder: Path) -> tuple[dict[str, Any], str]:
    _, matter, body = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(matter), body


def change(place: Place, version: str, config: dict[str, Any] | None = None, **changes: Any) -> None:
    """Change a policy's row, and the section `policy` of its config."""
    (row,) = place.lake.read("policies", where={"policy_version": version}).to_pylist()
    held = json.loads(row["config"])
    held["policy"] |= config or {}
    place.lake.upsert("policies", [{**row, "config": json.dumps(held), **changes}])


def base_of(folder: Path, text: str = "", **config: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if text:
        (folder / "README.md").write_text(text)
    return folder


def test_a_card_has_the_measures_with_intervals_the_parent_and_what_the_training_read(
    place: Place, tmp_path: Path
) -> None:
    change(place, "policy-0001", metrics='{"loss": 0.25, "merged": {"a": 1}}')
    export_policy(place.lake, "policy-0001", tmp_path / "out", "apache-2.0")
    front, body = card(tmp_path / "out")
    assert (front["license"], front["library_name"], front["pipeline_tag"]) == (
        "apache-2.0", "transformers", "image-text-to-text"
    )  # fmt: skip
    assert {"gui-agent", "flywheel", "sft"} <= set(front["tags"]) and "base_model" not in front
    assert "starting from `policy-0000`" in body and "| loss | 0.25 |" in body and "merged" not in body
    assert "| suite | success | interval | trajectories | parent's success |" in body
    (suite,) = [line for line in body.splitlines() if line.startswith("| tasks of the training | 75.0% |")]
    assert suite.endswith("| 50.0% |") and "| fake/two-steps | tasks of the training | 75.0% |" in body
    assert "| policy-initial | random |" in body and "The training read " in body
    assert str(tmp_path) not in body


def test_a_policy_without_measures_says_so(place: Place, tmp_path: Path) -> None:
    (row,) = place.lake.read("policies", where={"policy_version": "policy-initial"}).to_pylist()
    place.lake.append("policies", [{**row, "policy_version": "new", "data_versions": "{}"}])
    export_policy(place.lake, "new", tmp_path / "out")
    _, body = card(tmp_path / "out")
    assert "This policy was not measured." in body and "No trajectory: " in body and "random weights" in body


@pytest.mark.parametrize(
    ("folder", "text", "config", "found"),
    [
        ("plain", "---\nlicense: mit\nbase_model:\n- own/base\n---\n# B\n", {}, ("own/base", "mit")),
        ("plain", "---\nlicense: mit\n---\n", {"_name_or_path": "own/trained"}, ("own/trained", "mit")),
        ("models--Qwen--Qwen2.5-VL-7B/snapshots/0", "", {}, ("Qwen/Qwen2.5-VL-7B", "unknown")),
        ("plain", "", {"_name_or_path": "/home/me/secret/model"}, (None, "unknown")),
        ("plain", "---\nlicense: &a [*a]\n", {}, (None, "unknown")),
    ],
)
def test_a_base_is_named_as_on_the_hub_with_its_licence_and_never_by_a_path(
    place: Place, tmp_path: Path, folder: str, text: str, config: dict[str, Any], found: tuple[str | None, str]
) -> None:
    base = base_of(tmp_path / folder, text, **config)
    change(place, "policy-0001", {"base": str(base), "family": "qwen2.5-vl"})
    export_policy(place.lake, "policy-0001", tmp_path / "out")
    front, body = card(tmp_path / "out")
    assert (front.get("base_model"), front["license"]) == found
    assert "vllm serve DIR" in body and "policy.family=qwen2.5-vl" in body
    assert "/home/me" not in body and str(tmp_path) not in body


def test_a_card_does_not_change_the_family_of_the_exported_checkpoint(place: Place, tmp_path: Path) -> None:
    base = base_of(tmp_path / "base", "---\nbase_model: Qwen/Qwen2.5-VL-7B-Instruct\n---\n")
    change(place, "policy-0001", {"base": str(base)})
    export_policy(place.lake, "policy-0001", tmp_path / "out")
    (tmp_path / "out" / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    (tmp_path / "out" / "tokenizer.json").write_text('{"added_tokens": [{"content": "<tool_call>"}]}')
    known = name_of(PolicyConfig(base=str(tmp_path / "out")))
    (tmp_path / "out" / "README.md").unlink()
    assert name_of(PolicyConfig(base=str(tmp_path / "out"))) == known


@pytest.mark.parametrize("kind", ["pretrained", "adopted"])
def test_a_policy_that_came_with_a_card_keeps_it(place: Place, tmp_path: Path, kind: str) -> None:
    model = base_of(tmp_path / "theirs", "# Theirs\n")
    checkpoint = place.lake.blobs.put_directory(model, "checkpoints/theirs")
    change(place, "policy-0001", kind=kind, checkpoint=checkpoint)
    export_policy(place.lake, "policy-0001", tmp_path / "out")
    assert (tmp_path / "out" / "README.md").read_text() == "# Theirs\n"


def test_a_licence_in_another_form_is_refused(place: Place, tmp_path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError):
        export_policy(place.lake, "champion", tmp_path / "out", "MIT License")
    assert not (tmp_path / "out").exists()


def test_front_matter_is_read_without_constructing_it(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("---\nlicense: !!python/object/apply:os.system [exit]\nbase_model: [a/b, c/d]\nn: {x: 1}\n---\n")
    assert front_of(file) == {"license": "exit", "base_model": "a/b"}
    file.write_text("---\nlicense: [\n---\n")
    assert front_of(file) == front_of(tmp_path / "none") == {}
