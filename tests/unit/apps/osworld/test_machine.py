"""Commands as OSWorld's clients send them."""

import subprocess
from typing import Any

import pytest

from apps.osworld.machine import as_command


@pytest.mark.parametrize(
    "given", ["echo 'a b' | tr a c", ["echo 'a b' | tr a c"], ["echo a", "b"], ["echo $0 $1", "b c", "d"], ["true"]]
)
def test_a_command_for_a_shell_does_what_pythons_subprocess_does(given: Any) -> None:
    theirs = subprocess.run(given, shell=True, capture_output=True, text=True)
    command = as_command(given, True)
    ours = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


def test_a_command_without_a_shell_is_words() -> None:
    assert as_command("echo 'a b'", False) == as_command(["echo", "a b"], False) == ["echo", "a b"]


@pytest.mark.parametrize("given", [None, [], [1], ["a", None], {"a": 1}])
@pytest.mark.parametrize("shell", [True, False])
def test_what_is_no_command_is_refused(given: Any, shell: bool) -> None:
    with pytest.raises(ValueError, match="`command` is a list of words, or a text"):
        as_command(given, shell)
