"""A shell in its jail: commands go on from each other, and one that does not end costs its time and nothing else."""

import asyncio
import contextlib
import itertools
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from environments.bubblewrap import OWNER, sweep
from environments.hybrid.bubblewrap import SandboxLimits, owner
from environments.hybrid.files import Files
from environments.hybrid.sandbox import answers_of
from environments.hybrid.tasks.task import Trial
from environments.hybrid.terminal import MOST_OUTPUT, TerminalSession
from environments.seccomp import REFUSED, SOCKETS, program, sockets
from schemas.failure import ActionFailure, SandboxFailure
from tests.fixtures.escapes import leftovers
from tests.system.hybrid.isolation import NEEDS_A_JAIL, run

pytestmark = NEEDS_A_JAIL
T = TypeVar("T")
ROOT = Path(__file__).parents[3]
STANDARD = SandboxLimits()


def shell(
    work: Callable[[TerminalSession], Awaitable[T]], command_s: float = 1.0, limits: SandboxLimits = STANDARD
) -> T:
    async def inside() -> T:
        terminal = await TerminalSession.open(limits, command_s)
        try:
            return await work(terminal)
        finally:
            await terminal.close()

    return run(inside())


def answer(*commands: str) -> list[str]:
    async def each(terminal: TerminalSession) -> list[str]:
        return [(await terminal.run(command)).output for command in commands]

    return shell(each)


def test_the_folder_and_the_variables_stay_from_command_to_command() -> None:
    assert answer("mkdir a; cd a; X=7", 'echo "$X"; pwd')[1] == "7\n/work/a\n"


def test_a_command_has_lines_quotes_and_a_status() -> None:
    async def each(terminal: TerminalSession) -> None:
        assert (await terminal.run("echo 'a\nb' \"c!d\"")).output == "a\nb c!d\n"
        assert (await terminal.run("false")).status == 1
        assert "unexpected EOF" in (await terminal.run('echo "open')).output
        assert (await terminal.run("cat")).status == 0, "a command has no keyboard"
        assert (await terminal.run("printf '\\033[31mred'")).output == "\\x1b[31mred"

    shell(each)


@pytest.mark.parametrize(
    "command", ["sleep 60", "while :; do :; done", "python3 -c 'while True: pass'", "tail -f /dev/null"]
)
def test_a_command_that_never_ends_is_interrupted_and_the_shell_goes_on(command: str) -> None:
    async def each(terminal: TerminalSession) -> None:
        await terminal.run("X=kept")
        ran = await terminal.run(command)
        assert (ran.status, ran.note) == (None, "stopped after 0.3 s")
        assert (await terminal.run("echo $X")).output == "kept\n"

    shell(each, 0.3)


def test_a_command_that_cannot_be_interrupted_is_killed_with_the_shell_and_the_files_stay() -> None:
    async def each(terminal: TerminalSession) -> None:
        await terminal.run("echo here > kept.txt")
        ran = await terminal.run("trap '' INT; sleep 60")
        assert ran.note == "stopped after 0.3 s; the shell is a new one"
        assert (await terminal.run("cat kept.txt")).output == "here\n"

    shell(each, 0.3)


def test_output_without_end_is_cut_and_the_shell_goes_on() -> None:
    async def each(terminal: TerminalSession) -> None:
        for command in ("yes", "cat /dev/zero", "trap '' INT; yes", "yes & yes"):
            ran = await terminal.run(command)
            assert len(ran.output) >= MOST_OUTPUT and "KiB of output" in ran.note
            await terminal.run("pkill yes")
        assert (await terminal.run("echo on")).output == "on\n"

    shell(each, 5.0)


def test_a_shell_that_is_left_is_followed_by_a_new_one() -> None:
    async def each(terminal: TerminalSession) -> None:
        assert (await terminal.run("cd /tmp; exit 3")).note == "the shell ended; this is a new one"
        assert (await terminal.run("pwd")).output == "/work\n"
        assert (await terminal.run("exec true")).status is None
        assert (await terminal.run("exec > /dev/null")).status == 0
        assert (await terminal.run("echo on >&2")).status == 0

    shell(each)


def test_the_word_of_a_mark_is_handed_to_no_process_and_neither_is_the_end_of_its_pipe() -> None:
    async def each(terminal: TerminalSession) -> None:
        seen = await terminal.run("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'; ls /proc/self/fd")
        assert re.search("[0-9a-f]{16}", seen.output) is None
        assert seen.output.split()[-4:] == ["0", "1", "2", "3"], "3 is the folder that ls lists"
        assert "Bad file descriptor" in (await terminal.run("bash -c 'echo x >&9'")).output

    shell(each)


ABSURD = ("9" * 5000, "9" * 3, "-1", "", "nan", "0x1")
"""Statuses that a shell cannot have."""


@pytest.mark.parametrize("status", ABSURD, ids=lambda one: one[:4])
@pytest.mark.parametrize("folder", ["/", "/../../etc", "/" + "x" * 20_000, ""], ids=lambda one: one[:4])
def test_a_command_that_learns_the_word_of_its_mark_can_lie_about_itself_and_ends_nothing_else(
    status: str, folder: str
) -> None:
    lie = f"lie() {{ LIED=$1; printf '\\036%s %s %s\\037' \"$1\" '{status}' '{folder}' >&9; }}"
    trap = "trap '[[ $BASH_COMMAND =~ [0-9a-f]{16} ]] && lie ${BASH_REMATCH[0]}' DEBUG"

    async def each(terminal: TerminalSession) -> None:
        for command in (lie, trap, "echo on", "echo word $LIED"):
            ran = await terminal.run(command)
            assert (ran.status is None or 0 <= ran.status <= 999) and len(terminal.folder) < 5000
        assert re.match("word [0-9a-f]{16}", ran.output), "it learned no word"

    shell(each, 1.5)


def test_shells_that_are_said_to_start_for_ever_end_the_jail_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    words = itertools.chain(["f" * 16], (f"{number:016x}" for number in itertools.count()))
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(words))

    async def each(terminal: TerminalSession) -> None:
        with pytest.raises(ActionFailure, match="its shell ended again and again"):
            await terminal.run(f"for i in {{1..400}}; do printf '\\036{'f' * 16} 0 /\\037'; done")

    shell(each, 3.0)


def test_a_shell_that_is_a_program_which_ends_itself_is_the_policy_s_failure_or_a_note() -> None:
    async def each(terminal: TerminalSession) -> None:
        for command in ("builtin() { echo no; }", "readonly PWD; cd /tmp", "mkdir $'a\x1fb\x1e'; cd a*", "exec 9>&-"):
            await terminal.run(command)
            assert (await terminal.run("echo on")).output.splitlines()[-1:] in (["on"], ["no"])

    shell(each, 1.0)


def test_a_command_that_ends_everything_is_the_policy_s_failure_and_a_kill_from_outside_is_not() -> None:
    async def all_of_it(terminal: TerminalSession) -> None:
        with pytest.raises(ActionFailure, match="the shell was ended"):
            await terminal.run("kill -9 -1; sleep 5")
        with pytest.raises(ActionFailure, match="the shell was ended"):
            await terminal.run("echo")

    async def from_outside(terminal: TerminalSession) -> None:
        os.kill(terminal.bubblewrap.pid, signal.SIGKILL)
        with pytest.raises(SandboxFailure, match="was killed"):
            await terminal.run("sleep 5")

    shell(all_of_it, 3.0)
    shell(from_outside, 3.0)


def test_too_much_memory_of_many_ends_the_shell_with_its_reason() -> None:
    async def each(terminal: TerminalSession) -> None:
        with pytest.raises(ActionFailure, match=r"held \d+ MiB, and 64 are allowed"):
            hog = "python3 -I -S -c 'x = bytearray(50 << 20); import time; time.sleep(3)'"
            await terminal.run(f"{hog} & {hog} & {hog}")

    shell(each, 3.0, SandboxLimits(memory_mib=64))


def test_too_much_of_the_processor_ends_the_shell_with_its_reason() -> None:
    async def each(terminal: TerminalSession) -> None:
        with pytest.raises(ActionFailure, match="computed for"):
            await terminal.run("for i in 1 2 3; do while :; do :; done & done; wait")

    shell(each, 8.0, SandboxLimits(cpu_s=1))


IGNORED = """python3 -I -S - <<'END'
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(12):
    if (child := os.fork()) == 0:
        while time.process_time() < 0.4:
            pass
        os._exit(0)
    while os.path.exists(f"/proc/{child}"):
        time.sleep(0.01)
print("done")
END"""


def test_what_children_computed_whose_end_their_parent_ignores_is_counted() -> None:
    async def each(terminal: TerminalSession) -> None:
        with pytest.raises(ActionFailure, match="computed for"):
            await terminal.run(IGNORED)

    shell(each, 20.0, SandboxLimits(cpu_s=2))


@pytest.mark.slow
def test_what_children_computed_is_counted_once() -> None:
    async def each(terminal: TerminalSession) -> None:
        await terminal.run(
            IGNORED.replace("SIG_IGN", "SIG_DFL").replace("while os", "os.waitpid(child, 0)\n    while os")
        )
        assert 4.5 < terminal.bubblewrap.usage().cpu_s < 6.5

    shell(each, 30.0)


def test_a_command_that_is_too_long_or_holds_a_zero_byte_is_not_begun() -> None:
    async def each(terminal: TerminalSession) -> None:
        for command in ("#" * 40_000, "echo a\0b"):
            ran = await terminal.run(command)
            assert ran.status is None and "at most" in ran.note
        assert (await terminal.run("echo " + "x" * 30_000)).output == "x" * 30_000 + "\n"

    shell(each)


def test_files_of_the_host_s_side_and_of_the_shell_s_are_the_same_ones() -> None:
    async def each(terminal: TerminalSession) -> None:
        files = Files(terminal.bubblewrap.disks[0], owner())
        files.write("in/a.txt", b"host\n")
        assert (await terminal.run("cat in/a.txt; echo shell >> in/a.txt; ln -s /etc/passwd b.txt")).output == "host\n"
        assert files.read("in/a.txt") == b"host\nshell\n"
        with pytest.raises(OSError):
            files.read("b.txt")
        with pytest.raises(OSError, match="No space left"):
            files.write("big", b"x" * 40_000_000)

    shell(each)


def test_a_program_is_asked_in_a_jail_of_its_own_and_one_that_hangs_or_ends_everything_answers_nothing() -> None:
    trial = Trial("a.py", "f", (((1,), 2), ((2,), 3)))

    async def asked(program: bytes) -> tuple[object, ...]:
        return await answers_of(trial, {"a.py": program}, SandboxLimits())

    assert run(asked(b"def f(x):\n    return x + 1\n")) == (2, 3)
    assert run(asked(b"import os, signal\nos.kill(-1, signal.SIGKILL)\n")) == ()
    assert run(asked(b"def f(x):\n    return object()\n")) == ()
    assert run(asked(b"not python")) == ()


def test_a_program_has_what_stands_beside_it_and_a_tuple_is_no_list_and_its_test_must_pass() -> None:
    trial = Trial("a.py", "f", (((1,), [1]),), "test_a.py")

    async def asked(**sources: str) -> tuple[object, ...]:
        files = {f"{name}.py": source.encode() for name, source in sources.items()}
        return await answers_of(trial, {"test_a.py": b"from a import f\nassert f(2) == [2]\n"} | files, SandboxLimits())

    assert run(asked(a="from beside import f\n", beside="def f(x):\n    return [x]\n")) == ([1],)
    assert run(asked(a="def f(x):\n    return [x]\n", json="raise ValueError")) == ([1],)
    assert run(asked(a="def f(x):\n    return [2]\n", test_a="")) == ([2],)
    assert run(asked(a="def f(x):\n    return [x] if x == 2 else (x,)\n")) == ({"tuple": [1]},)
    assert run(asked(a="def f(x):\n    return (x,)\n")) == ()
    assert run(asked(a="def f(x):\n    return [1]\n")) == (), "its test fails"


KILLED = """
import asyncio
from environments.hybrid.bubblewrap import SandboxLimits
from environments.hybrid.terminal import TerminalSession

async def main():
    terminal = await TerminalSession.open(SandboxLimits(), 60)
    await terminal.run("sleep 87654 & setsid sleep 87654 &")
    print("up", flush=True)
    await terminal.run("sleep 87654")

asyncio.run(main())
"""


def test_nothing_outlives_a_process_that_is_killed_outright() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        began = time.monotonic()
        while not leftovers("87654"):
            assert time.monotonic() < began + 10
            time.sleep(0.05)
        process.kill()
    deadline = time.monotonic() + 10
    while leftovers("87654") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert leftovers("87654") == []


def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    async def cancelled() -> None:
        for pause in (0.0, 0.002, 0.01, 0.02):
            opening = asyncio.ensure_future(TerminalSession.open(SandboxLimits(), 1.0))
            await asyncio.sleep(pause)
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()

    before = len(os.listdir("/proc/self/fd"))
    run(cancelled())
    assert len(os.listdir("/proc/self/fd")) == before
    assert jails_of(os.getpid()) == []


def test_what_a_start_left_whose_process_was_killed_is_ended_by_the_next_process_that_starts_one() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = subprocess.Popen(["bwrap", "--setenv", OWNER, str(gone.pid), "--ro-bind", "/", "/", "sleep", "60"])
    own = subprocess.Popen(["bwrap", "--setenv", OWNER, str(os.getpid()), "--ro-bind", "/", "/", "sleep", "60"])
    try:
        sweep.cache_clear()
        while not (jails_of(gone.pid) and jails_of(os.getpid())):
            time.sleep(0.01)
        sweep()
        assert left.wait(5) == -signal.SIGKILL and own.poll() is None
    finally:
        for one in (left, own):
            one.kill()
            one.wait()


def jails_of(process: int) -> list[int]:
    """The processes of bubblewrap that a process started, or that are left of it."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = one.cmdline()
            if one.name() == "bwrap" and one.status() != psutil.STATUS_ZOMBIE and OWNER in command:
                found += [one.pid] if command[command.index(OWNER) + 1] == str(process) else []
    return found


def test_the_filter_is_made_for_the_machines_whose_numbers_are_known() -> None:
    assert len(program("x86_64")) == len(program("aarch64")) == 8 * (2 * len(REFUSED) + len(SOCKETS) + 18)
    assert len(sockets("x86_64")) == len(sockets("aarch64")) == 8 * (len(SOCKETS) + 12)
    assert program("riscv64") == sockets("riscv64") == b""
