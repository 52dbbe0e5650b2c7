"""Asks a program that a policy wrote, in a fresh jail in which nothing else of the policy runs."""

import json
import shlex
from typing import Any

from environments.hybrid.files import Files
from environments.hybrid.jail import Limits, owner
from environments.hybrid.tasks.task import Trial
from environments.hybrid.terminal import Terminal
from schemas.failure import ActionFailure

TRIAL_S = 5.0
_ASK = """
import importlib.util, json, sys
cases = json.load(open("/tmp/cases.json"))
spec = importlib.util.spec_from_file_location("program", sys.argv[1])
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
answers = [getattr(program, sys.argv[2])(*case) for case in cases]
json.dump(answers, open("/tmp/answers.json", "w"))
"""
_PYTHON = "python3 -I -S -c"


async def answers_of(trial: Trial, program: bytes, limits: Limits) -> tuple[Any, ...]:
    """What the program's function answers to the trial's cases; nothing where it has no answer to all of them.

    Raises:
        SandboxFailure: no jail starts, or it is killed.
    """
    terminal = await Terminal.open(limits, TRIAL_S)
    try:
        work, temporary = (Files(disk, owner()) for disk in terminal.jail.disks[:2])
        work.write(trial.path, program)
        temporary.write("cases.json", json.dumps([case for case, _ in trial.cases]).encode())
        await terminal.run(f"{_PYTHON} {shlex.quote(_ASK)} {shlex.quote(trial.path)} {shlex.quote(trial.function)}")
        answers = json.loads(temporary.read("answers.json"))
    except (ActionFailure, OSError, ValueError, RecursionError):
        return ()
    finally:
        await terminal.close()
    return tuple(answers) if isinstance(answers, list) else ()
