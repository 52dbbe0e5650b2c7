"""Every verb, as a program meets it: `--json`, exit status 2 for usage, and help that is there."""

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
import typer

from apps.cli import make_app
from tests.command import Call
from tests.fixtures.sentences import Sentences

WITHOUT_JSON = {
    "desk": "serves until a signal ends it; its address is the first line",
    "serve": "serves until a signal ends it; its address is the first line",
    "serve-sandboxes": "serves until a signal ends it; its address is the first line",
    "serve-osworld": "serves until a signal ends it; its address is the first line",
    "up": "runs until a signal ends it",
}
"""Verbs that end in nothing a program could read, and why; docs/run.md names them."""
ARGUMENTS = {
    "forget": ("0123456789abcdef01234567", "--reason", "asked"),
    "lineage": ["policy-0000"],
    "adopt": ["folder"],
    "merge": ["policy-0000"],
    "diff": ["policy-0000", "policy-0001"],
    "plan": ["--model", "folder", "--gpus", "8x80"],
    "export": ["--policy", "champion", "--to", "folder"],
    "curriculum explain": ["two-steps"],
    "tasks retire": ["site/made"],
    "data export": ["--format", "agentnet", "--to", "folder"],
    "data import": ["folder", "--format", "agentnet"],
    "checkpoint inspect": ["s3://b/p"],
    "checkpoint verify": ["s3://b/p"],
    "checkpoint reshard": ["s3://b/p", "--to", "s3://b/q", "--ranks", "2"],
    "checkpoint export": ["s3://b/p", "--to", "folder", "--parent", "folder"],
}
"""What some verbs cannot do without."""


def verbs() -> Iterator[tuple[str, click.Command]]:
    whole: Any = typer.main.get_command(make_app())
    for name, one in sorted(whole.commands.items()):
        if hasattr(one, "commands"):
            yield from ((f"{name} {inner}", command) for inner, command in sorted(one.commands.items()))
        else:
            yield name, one


VERBS = dict(verbs())


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_json_or_says_why_not_takes_a_config_and_is_explained(name: str) -> None:
    command = VERBS[name]
    assert ("--json" in options(command)) != (name in WITHOUT_JSON)
    assert command.help and command.help.strip().endswith(".")
    for parameter in command.params:
        if isinstance(parameter, click.Option) or hasattr(parameter, "help"):
            assert getattr(parameter, "help", None), f"{name} {parameter.opts} is not explained"


@pytest.mark.parametrize("name", VERBS)
def test_usage_that_is_wrong_ends_with_2_before_anything_begins(name: str, flywheel: Call, place: Any) -> None:
    assert flywheel(*name.split(), "--no-such-option")[0] == 2
    needed = any(one.required for one in VERBS[name].params)
    if "--config" not in options(VERBS[name]) or (needed and name not in ARGUMENTS):
        return  # it reads no config, or its argument is what is refused first
    code, out, err = flywheel(*name.split(), *ARGUMENTS.get(name, ()), "--config", place.file, "train.stepz=3")
    assert (code, out) == (2, "") and "train.stepz" in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["status", "doctor", "tasks list", "report", "upgrade", "run"])
def test_with_json_standard_output_is_one_document(name: str, flywheel: Call, place: Any) -> None:
    more = ["--dry-run"] if name == "run" else []
    _, out, _ = flywheel(*name.split(), *more, "--json", "--config", place.file)
    assert json.loads(out)


def test_a_plan_and_the_doctor_say_which_optional_environment_is_left_out(
    flywheel: Call, place: Any, no_bubblewrap: None, sentence: Sentences
) -> None:
    optional = ["--config", place.file, "environments.hybrid.optional=true"]
    _, planned, _ = flywheel("run", "--dry-run", "--json", *optional)
    (said,) = [one for one in json.loads(planned)["sandboxes"] if "hybrid" in one]
    _, examined, _ = flywheel("doctor", "--json", *optional)
    (check,) = [one for one in json.loads(examined)["checks"] if "hybrid" in one["name"]]
    assert check["ok"] and check["detail"] in said
    sentence(check["detail"])


def test_groups_and_the_program_itself_explain_themselves(flywheel: Call) -> None:
    for words in ((), ("checkpoint",), ("data",)):
        code, out, err = flywheel(*words)
        assert code in (0, 2) and "Commands" in out + err
    assert flywheel("no-such-verb")[0] == 2


@pytest.mark.parametrize("name", ["adopt", "evaluate", "data export", "checkpoint reshard"])
def test_help_cuts_no_word_on_a_narrow_terminal(name: str, flywheel: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = flywheel(*name.split(), "--help")
    assert "…" not in out and all(len(line) <= 60 for line in out.splitlines())
    words = " ".join(out.split())
    for parameter in VERBS[name].params:
        assert " ".join((getattr(parameter, "help", None) or "").split()) in words
