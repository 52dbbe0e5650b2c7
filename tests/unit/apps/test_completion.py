"""What a shell completes besides verbs and options: config keys, their values, policies, tasks and config files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from apps import completion
from apps.cli import make_app


def context(**params: object) -> typer.Context:
    made = typer.Context(typer.main.get_command(make_app()))
    made.params.update(params)
    return made


def test_a_key_is_completed_and_its_value_as_each_shell_splits_it() -> None:
    assert completion.overrides(context(), "train.meth") == ["train.method="]
    assert completion.overrides(context(), "train.method=g") == ["train.method=grpo"]
    for before in (["train.method"], ["seed=3", "train.method", "="]):
        assert completion.overrides(context(overrides=before), "g") == ["grpo"]
    assert completion.overrides(context(overrides=["seed", "=", "3"]), "train.meth") == ["train.method="]
    assert completion.overrides(context(), "no.such") == completion.overrides(context(), "seed=") == []


def test_policies_are_those_of_the_lake_that_the_command_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for lake, version in (("lake", "policy-0001"), ("mine", "policy-0002"), ("other", "policy-0003")):
        (tmp_path / lake / "blobs/checkpoints" / version).mkdir(parents=True)
    assert completion.policies(context(), "policy") == ["policy-0001"]
    Path("flywheel.toml").write_text('[lake]\nuri = "mine"')
    assert completion.policies(context(), "") == ["champion", "explorer", "policy-0002"]
    for words in (("lake.uri=other",), ("lake.uri", "=", "other")):
        assert completion.policies(context(overrides=words), "policy") == ["policy-0003"]
    for address in ("s3://bucket/lake", "nowhere"):
        assert completion.policies(context(overrides=[f"lake.uri={address}"]), "policy") == []


def test_tasks_are_those_of_the_suite_and_files_those_of_the_folder_and_the_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completion.tasks(context(config=Path("smoke")), "click-one,cl") == [
        "click-one,click-one",
        "click-one,click-target",
    ]
    Path("own.toml").write_text("[suite]\ntasks = ['a']\nheld_out = ['b']")
    assert completion.tasks(context(config=Path("own.toml")), "") == ["a", "b"]
    assert completion.config_files("") == [*completion.config_files("")[:-1], "own.toml"]
    assert completion.config_files("lap") == ["laptop"]
    Path("own.toml").write_text("no TOML")
    assert completion.tasks(context(config=Path("own.toml")), "") == []


@pytest.mark.slow
def test_a_shell_is_answered_without_heavy_imports(tmp_path: Path) -> None:
    asked = {"_FLYWHEEL_COMPLETE": "complete_bash", "COMP_WORDS": "flywheel run train.meth", "COMP_CWORD": "2"}
    script = "import sys; sys.argv = ['flywheel']; from apps.cli import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **asked}, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.stdout.split() == ["train.method="] and "apps.completion" in imported
    assert not imported & {"torch", "prefect", "duckdb", "pyarrow", "numpy"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("flywheel run train.meth", "train.method="),
        ("flywheel run --config lap", "laptop"),
        ("flywheel evaluate --policy policy-0", "policy-0001"),
        ("flywheel lineage policy-0", "policy-0001"),
        ("flywheel rollback policy-0", "policy-0001"),
        ("flywheel diff policy-0", "policy-0001"),
        ("flywheel tag policy-0", "policy-0001"),
        ("flywheel merge policy-0", "policy-0001"),
        ("flywheel diff policy-0001 train.meth", "train.method="),
        ("flywheel trajectories --policy policy-0", "policy-0001"),
        ("flywheel evaluate --tasks click-te", "click-test"),
    ],
)
def test_a_tab_takes_less_than_three_tenths_of_a_second(words: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "lake/blobs/checkpoints/policy-0001").mkdir(parents=True)
    number = str(len(words.split()) - 1)
    asked = {"_FLYWHEEL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": number}
    script = "import sys; sys.argv = ['flywheel']; from apps.cli import main; main()"
    spent = list[float]()
    for _ in range(3):
        before = os.times()
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, **asked}, capture_output=True, text=True
        )
        after = os.times()
        assert found in done.stdout.split()
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(spent) < 0.3  # of processor time, which other processes do not change


def test_the_lake_is_known_while_the_last_option_has_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other/blobs/checkpoints/policy-0003").mkdir(parents=True)
    made = context()
    made.args = ["lake.uri", "=", "other"]
    assert completion.policies(made, "policy") == ["policy-0003"]
