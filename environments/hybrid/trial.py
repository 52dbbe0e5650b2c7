"""Run the test of a program that a policy wrote, and further cases, in a fresh sandbox without other processes of the
policy."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from environments.hybrid.bubblewrap import SandboxLimits, owner
from environments.hybrid.files import Files
from environments.hybrid.tasks.task import Trial
from environments.hybrid.terminal import TerminalSession
from schemas.failure import ActionFailure

TRIAL_S = 5.0
"""Seconds for the test and all cases together."""
_ASK = """
import importlib.util, json, sys
cases = json.load(open("/tmp/cases.json"))
sys.path.insert(0, "/work")
spec = importlib.util.spec_from_file_location("program", sys.argv[1])
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)

def plain(answer):
    if isinstance(answer, tuple):
        return {"tuple": [plain(one) for one in answer]}
    return [plain(one) for one in answer] if isinstance(answer, list) else answer

answers = [plain(getattr(program, sys.argv[2])(*case)) for case in cases]
json.dump(answers, open("/tmp/answers.json", "w"))
"""
"""JSON writes a tuple as a list, which is not equal to it, so the type is checked before."""


async def answers_of(trial: Trial, sources: Mapping[str, bytes], limits: SandboxLimits) -> tuple[Any, ...]:
    """Runs the program's function on the trial's cases.

    Args:
        trial: the program and its cases.
        sources: by path, the program, the original test, and the other Python files of the folder.
        limits: limits of the sandbox.

    Returns:
        The answers; empty if its test fails, or a case has no answer.

    Raises:
        SandboxFailure: no sandbox starts, or it is killed.
    """
    terminal = await TerminalSession.open(limits, TRIAL_S)
    try:
        work, temporary = (Files(disk, owner()) for disk in terminal.bubblewrap.disks[:2])
        for path, content in sources.items():
            work.write(path, content)
        temporary.write("cases.json", json.dumps([case for case, _ in trial.cases]).encode())
        ask = shlex.join(("python3", "-I", "-S", "-c", _ASK, trial.path, trial.function))
        test = f"{shlex.join(('python3', trial.test))} > /dev/null && " if trial.test else ""
        ran = await terminal.run(test + ask)
        answers = json.loads(temporary.read("answers.json")) if ran.status == 0 else None
    except (ActionFailure, OSError, ValueError, RecursionError):
        return ()
    finally:
        await terminal.close()
    return tuple(answers) if isinstance(answers, list) else ()
