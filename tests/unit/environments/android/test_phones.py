"""A demo phone as the sandboxes, the client and Debian's adb meet it, and the phones that cannot be used."""

import asyncio
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from environments.android.adb import Adb, AdbFailure, AdbUnreachable
from environments.android.demo import SERIAL, DemoPhone
from environments.android.environment import AndroidConfig, AndroidEnvironment
from environments.android.sandbox import AndroidReward
from environments.chromium.browser import find_browser
from environments.pool import SandboxPool
from environments.sandbox import Sandbox
from schemas import action as act
from schemas.config.sections import _environment
from schemas.failure import ActionFailure, FlywheelError, SandboxFailure, UsageError
from tests.tiers import lacks

T = TypeVar("T")
ADB = shutil.which("adb")


def environment(**fields: object) -> AndroidEnvironment:
    return AndroidEnvironment("phone", AndroidConfig.model_validate({"kind": "android", "settle_s": 0.0, **fields}))


@asynccontextmanager
async def phone() -> AsyncIterator[DemoPhone]:
    made = await DemoPhone.start(find_browser())
    try:
        yield made
    finally:
        await made.end()


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that gives one answer to everything, and then closes; an empty answer is silence."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    stream, _ = server.accept()
                except OSError:
                    return
                held.append(stream)
                if answer:
                    stream.recv(100)
                    stream.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for stream in held:
            stream.close()


@pytest.mark.usefixtures("real_browser")
def test_each_demo_task_starts_unsolved_and_its_script_solves_it() -> None:
    phones = environment(demo_phones=1)

    async def solve() -> None:
        async with SandboxPool([phones]) as pool:
            for template in [*phones.entries] * 2:  # the second round begins where the first one began
                async with pool.lease(phones.task(template), 0) as sandbox:
                    while action := await sandbox.hint():
                        assert not (await sandbox.verify(AndroidReward())).done
                        assert await sandbox.perform(action) is None
                    assert (await sandbox.verify(AndroidReward())).reward == 1.0, template
                    seen = await sandbox.observe()
                    assert (seen.width, seen.height) == (360, 640)

    asyncio.run(solve())


def test_a_script_of_a_user_s_task_is_read_from_the_config() -> None:
    script = [{"type": "open_app", "app_name": "Clock"}, {"type": "click", "x": 0.5, "y": 0.2}]
    tasks = {"own": {"instruction": "Open it.", "check": "true", "script": script}}
    entry = environment(demo_phones=1, tasks=tasks).config.tasks["own"]
    assert entry.script == (act.OpenApp(app_name="Clock"), act.Click(x=0.5, y=0.2))


def test_an_unknown_app_is_an_answer_to_the_policy_with_the_nearest_names() -> None:
    async def opened() -> str | None:
        phones = environment(demo_phones=1)
        async with SandboxPool([phones]) as pool, pool.lease(phones.task("phone-wifi"), 0) as sandbox:
            return await sandbox.perform(act.OpenApp(app_name="Setings"))

    assert asyncio.run(opened()) == "the phone has no app 'Setings'; the nearest: settings, org.flywheel.demo.settings"


def played(server: DemoPhone, use: Callable[[Sandbox], Awaitable[T]], **fields: object) -> Awaitable[T]:
    """Uses a sandbox on the phone of a running server, as on a real phone."""
    task = {"instruction": "Turn on Wi-Fi.", "check": "settings get global wifi_on", "matches": "1"}
    phones = environment(server=f"127.0.0.1:{server.port}", **{"tasks": {"wifi": task}, **fields})

    async def run() -> T:
        pool = await asyncio.to_thread(SandboxPool, [phones])
        async with pool, pool.lease(phones.task("wifi"), 0) as sandbox:
            return await use(sandbox)

    return run()


@pytest.mark.usefixtures("real_browser")
def test_a_phone_that_is_unplugged_is_a_failure_of_the_environment() -> None:
    async def run() -> None:
        async with phone() as server:

            async def unplug(sandbox: Sandbox) -> None:
                assert await sandbox.perform(act.PressHome()) is None
                server.state = ""
                await sandbox.perform(act.PressHome())

            with pytest.raises(SandboxFailure, match=f"device '{SERIAL}' not found"):
                await played(server, unplug)

    asyncio.run(run())


@pytest.mark.usefixtures("real_browser")
def test_without_adbkeyboard_only_ascii_is_typed_and_the_keyboard_of_the_user_comes_back() -> None:
    async def run() -> None:
        async with phone() as server:
            ours, theirs = server.keyboards[1], server.keyboards[0]
            adb = Adb(port=server.port)

            async def keyboard(_: Sandbox | None = None) -> str:
                return (await asyncio.to_thread(adb.shell, SERIAL, "settings get secure default_input_method")).out

            assert await played(server, keyboard) == f"{ours}\n"
            assert await keyboard() == f"{theirs}\n"
            server.keyboards = [theirs]

            async def type_both(sandbox: Sandbox) -> None:
                assert await sandbox.perform(act.Type(content="hello")) is None
                await sandbox.perform(act.Type(content="世界"))

            with pytest.raises(ActionFailure, match="install ADBKeyboard"):
                await played(server, type_both)

    asyncio.run(run())


@pytest.mark.usefixtures("real_browser")
def test_a_tab_is_typed_into_a_field_of_several_lines() -> None:
    async def save(sandbox: Sandbox) -> None:
        script = act.Click(x=0.75, y=0.14), act.Click(x=0.5, y=0.2), act.Type(content="a\tb"), act.Click(x=0.5, y=0.33)
        for one in script:
            assert await sandbox.perform(one) is None

    async def run() -> None:
        async with phone() as server:
            await played(server, save)
            assert await server._js("data.notes") == ["a\tb"]

    asyncio.run(run())


@pytest.mark.usefixtures("real_browser")
def test_a_setup_command_that_fails_is_named() -> None:
    async def run() -> None:
        async with phone() as server:
            task = {"instruction": "Wait.", "check": "true", "setup": ["cat /sdcard/none"]}
            with pytest.raises(SandboxFailure, match="`cat /sdcard/none` ended with 1: cat: /sdcard/none: No"):
                await played(server, lambda sandbox: sandbox.observe(), tasks={"wifi": task})

    asyncio.run(run())


@pytest.mark.usefixtures("real_browser")
@pytest.mark.skipif(ADB is None, reason=lacks("no adb", "apt-get install adb"))
def test_debian_s_adb_uses_the_demo_phone_as_any_phone() -> None:
    async def adb(port: int, *asked: str) -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(
            str(ADB), "-P", str(port), *asked, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        out = (await process.communicate())[0]
        assert process.returncode is not None
        return process.returncode, out

    async def run() -> None:
        async with phone() as server:
            on = (server.port, "-s", SERIAL)
            assert await adb(server.port, "devices") == (0, f"List of devices attached\n{SERIAL}\tdevice\n\n".encode())
            assert await adb(*on, "shell", "wm", "size") == (0, b"Physical size: 360x640\n")
            assert await adb(*on, "shell", "cat /none") == (1, b"cat: /none: No such file or directory\n")
            assert await adb(*on, "shell", "input tap 90 83; dumpsys window") == (
                0, b"  mCurrentFocus=Window{demo u0 org.flywheel.demo.settings/.Main}\n"
            )  # fmt: skip
            code, png = await adb(*on, "exec-out", "screencap", "-p")
            assert code == 0 and png == await asyncio.to_thread(Adb(port=server.port).exec_out, SERIAL, "screencap -p")
            code, out = await adb(server.port, "-s", "other", "shell", "wm size")
            assert code == 1 and b"device 'other' not found" in out

    asyncio.run(run())


@contextmanager
def console(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """The console of an emulator, which gives one answer, and what it was asked."""
    asked: list[bytes] = []

    def serve(server: socket.socket) -> None:
        while True:
            try:
                stream, _ = server.accept()
            except OSError:
                return
            with stream:
                stream.sendall(b"Android Console: type 'help' for a list of commands\r\nOK\r\n")
                received = b""
                while b"quit" not in received and (part := stream.recv(100)):
                    received += part
                asked.append(received)
                stream.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield server.getsockname()[1], asked
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.usefixtures("real_browser")
@pytest.mark.skipif(ADB is None, reason=lacks("no adb", "apt-get install adb"))
def test_an_emulator_loads_its_snapshot_and_a_missing_snapshot_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    async def run(answer: bytes) -> list[bytes]:
        async with phone() as server:
            with console(answer) as (port, asked):
                server.serial = f"emulator-{port}"
                await played(server, lambda sandbox: sandbox.observe(), snapshot="clean")
                return asked

    assert asyncio.run(run(b"OK\r\n")) == [b"avd snapshot load clean\nquit\n"]
    with pytest.raises(SandboxFailure, match="did not load snapshot clean: KO: no such snapshot"):
        asyncio.run(run(b"KO: no such snapshot\r\n"))


@pytest.mark.skipif(ADB is None, reason=lacks("no adb", "apt-get install adb"))
def test_the_client_talks_to_a_real_adb_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {**os.environ, "HOME": str(tmp_path), "ADB_MDNS": "0"}
    command = [str(ADB), "-L", f"tcp:{port}", "nodaemon", "server"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            adb = Adb(port=port)
            for _ in range(100):
                try:
                    states = adb.devices()
                    break
                except AdbUnreachable:
                    threading.Event().wait(0.1)
            else:
                raise AssertionError("the adb server did not start")
            assert "nobody" not in states
            with pytest.raises(AdbFailure, match="device 'nobody' not found"):
                adb.shell("nobody", "true")
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("", "no phone is connected. Plug it in, or start the emulator"),
        ("R58\tunauthorized\n", "phone R58 is unauthorized. Unlock the phone and allow USB debugging"),
        ("R58\toffline\n", "phone R58 is offline. Plug the phone in again"),
    ],
)
def test_a_phone_that_cannot_be_used_is_named_with_its_fix(listed: str, message: str) -> None:
    task = {"instruction": "Wait.", "check": "true"}
    with answering(b"OKAY%04x" % len(listed) + listed.encode()) as port:
        phones = environment(server=f"127.0.0.1:{port}", tasks={"wait": task})
        with pytest.raises(FlywheelError, match=message):
            phones.probes()[0].examine()
        assert phones.hosts == 1


def test_a_server_that_does_not_answer_is_named_and_a_silent_one_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(
        FlywheelError, match=f"`environments.phone.server`: the adb server at 127.0.0.1:{port} does not"
    ):
        environment(server=f"127.0.0.1:{port}").probes()[0].examine()
    with answering(b"") as silent, pytest.raises(AdbUnreachable, match="timed out"):
        Adb(port=silent, limit_s=0.05).shell("R58", "true")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"OKAYzzzz", b"FAILzzzz"])
def test_a_port_of_another_program_is_named_with_the_fix(answer: bytes) -> None:
    with answering(answer) as port:
        message = f"127.0.0.1:{port} is no adb server: it answered .* name adb's own address, usually 127.0.0.1:5037"
        with pytest.raises(AdbUnreachable, match=message):
            Adb(port=port).devices()
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port, pytest.raises(AdbUnreachable, match="no adb server"):
        Adb(port=port).shell("R58", "true")


def test_every_phone_has_one_trajectory_at_a_time() -> None:
    listed = b"R58\tdevice\nemulator-5554\tdevice\nR59\toffline\n"
    with answering(b"OKAY%04x" % len(listed) + listed) as port:
        phones = environment(server=f"127.0.0.1:{port}")
        assert (phones.hosts, phones.sandboxes, phones.size) == (2, 1, 2)
        assert environment(serials=["a", "b", "c"]).size == 3
        with pytest.raises(UsageError, match="R58 is no emulator"):
            environment(server=f"127.0.0.1:{port}", snapshot="clean").host()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"serials": []}, "name every phone once"),
        ({"serials": ["R58"], "snapshot": "clean"}, "R58 is no emulator"),
        ({"demo_phones": 1, "serials": ["R58"]}, "a demo phone has neither serials nor a snapshot"),
        ({"demo_phones": 1, "server": "localhost:9999"}, "demo phones have an adb server of their own"),
        ({"browser": "/bin/true"}, "only demo phones need a browser"),
        ({"server": "5037"}, "is not an address such as 127.0.0.1:5037"),
        ({"tasks": {"a": {"instruction": "Wait."}}}, "tasks.a: give `check`"),
        ({"tasks": {"a": {"instruction": "Wait.", "check": "true", "matches": "("}}}, "is not a regular expression"),
        ({"tasks": {"a": {"instruction": "Wait.", "check": "true", "verifier": "judge"}}}, "`check` is not used"),
    ],
)
def test_a_section_that_cannot_work_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _environment("phone", {"kind": "android", **fields})
