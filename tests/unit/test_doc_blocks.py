"""Every code block of the documents: commands are parsed by the command itself and their keys resolved, code compiles.

What a command then does is other tests' matter; that it is there, takes these options, and reads these keys and tasks
is what a document can be wrong about.
"""

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from apps.cli import make_app
from apps.commands.verbs import default_word
from environments.catalog import catalog
from schemas.config import load_config
from schemas.failure import UsageError
from tasks.preflight.unused_keys import refuse_unused_keys

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
ELSEWHERE = ("lamps.toml",)
"""Config files that a document writes itself, and a test of their own turns."""


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def blocks() -> list[Block]:
    found: list[Block] = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            found.append(Block(page.name, text[: match.start()].count("\n") + 2, match[1], match[2]))
    return found


def commands() -> list[tuple[str, list[str]]]:
    """Where a `flywheel` command stands, and its words."""
    found: list[tuple[str, list[str]]] = []
    for block in blocks():
        if block.language not in ("", "sh", "bash", "console"):
            continue
        for number, line in enumerate(block.text.replace("\\\n", " ").splitlines()):
            plain = re.sub(r"\[(--[\w-]+(?: [A-Z]+)?)\]", r"\1", line.removeprefix("$ "))
            if not re.match(r"(?:[A-Z_]+=\S+ )*flywheel ", plain):
                continue
            words = shlex.split(plain, comments=True)
            words = ["3" if word == "N" else word for word in words[words.index("flywheel") + 1 :]]
            for end in ("|", "&&", ">", ";"):
                words = words[: words.index(end)] if end in words else words
            found.append((f"{block.page}:{block.line + number}", words))
    return found


COMMANDS = commands()
APP: Any = typer.main.get_command(make_app())


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters that the command reads from these words; click refuses what it does not know."""
    command, name = APP, "flywheel"
    while hasattr(command, "commands"):
        default = default_word(command.commands)
        words = words or [default or ""]
        if words[0] in ("--version", "--install-completion", "--show-completion"):
            return {}
        if words[0] in ("--log-json",):
            words = words[1:]
        if default and words[0] not in command.commands:
            words = [default, *words]
        assert words[0] in command.commands, f"there is no verb {words[0]}"
        command, name, words = command.commands[words[0]], words[0], words[1:]
    return command.make_context(name, list(words)).params


def test_there_are_commands_in_the_documents() -> None:
    assert len(COMMANDS) > 60 and any(where.startswith("run.md") for where, _ in COMMANDS)


@pytest.mark.parametrize(("where", "words"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_a_command_of_the_documents_is_one_and_its_keys_are_read(where: str, words: list[str]) -> None:
    params = parsed(words)
    overrides = [one for one in (params.get("overrides") or params.get("named") or ()) if "=" in one]
    file = params.get("config")
    if not overrides or str(file) in ELSEWHERE:
        return
    try:
        config = load_config(file, overrides, {})
    except UsageError as error:
        if "..." in str(overrides) or "there is nothing" in str(error).lower():
            return
        raise
    catalog(config)
    if params.get("iterations") is not None or words[0] == "run":
        refuse_unused_keys(config)


@pytest.mark.parametrize("block", [one for one in blocks() if one.language], ids=lambda one: f"{one.page}:{one.line}")
def test_code_of_the_documents_is_code_of_its_language(block: Block) -> None:
    if block.language in ("python", "py"):
        ast.parse(block.text)
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
