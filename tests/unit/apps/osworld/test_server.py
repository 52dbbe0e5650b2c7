"""Our server of OSWorld's interface: what it answers, whom it refuses, and that our own client drives it."""

import asyncio
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from apps.osworld.app import ABSENT
from environments.osworld.environment import OsworldConfig, OsworldEnvironment, OsworldReward, OsworldSandbox
from environments.pool import SandboxPool
from schemas import action as act
from schemas.failure import ActionFailure, SandboxFailure
from schemas.observation import Outcome
from tests.desktops import CONFIG, ON_OSWORLD_S, WITNESS, inputs_of, rows_of
from tests.fixtures.sentences import Sentences
from tests.unit.apps.osworld.served import Served, serving

pytestmark = ON_OSWORLD_S
TEXT = "a Z<9> ~'\"\\ é ß 漢 привет"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving([("xterm", "-title", "Terminal")]) as found:
        yield found


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=30) as client:
        yield client


def test_it_answers_what_osworld_s_own_answers(http: httpx.Client) -> None:
    shown = http.get("/screenshot")
    assert shown.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(shown.content)).size == (CONFIG.width, CONFIG.height)
    assert http.post("/screen_size").json() == {"width": CONFIG.width, "height": CONFIG.height}
    assert http.get("/platform").text == "Linux"
    assert http.get("/terminal").json()["status"] == "success"
    assert "Terminal" in http.get("/accessibility").json()["AT"]
    size = http.post("/window_size", data={"app_class_name": "xterm"}).json()
    assert 100 < size["width"] < CONFIG.width
    assert http.post("/window_size", data={"app_class_name": "nothing"}).status_code == 404
    home = http.post("/desktop_path").json()["desktop_path"]
    message = http.post(
        "/setup/upload", data={"file_path": "~/new/a.bin"}, files={"file_data": ("a.bin", b"\x00\r\n\xff")}
    )
    assert message.text == "File Uploaded: 4 bytes"
    assert http.post("/file", data={"file_path": f"{home}/new/a.bin"}).content == b"\x00\r\n\xff"
    assert http.post("/file", data={"file_path": "~/none"}).status_code == 404
    tree = http.post("/list_directory", json={"path": f"{home}/new"}).json()["directory_tree"]
    assert tree == {"type": "directory", "name": "new", "children": [{"type": "file", "name": "a.bin"}]}


def test_commands_are_run_as_osworld_s_own_runs_them(http: httpx.Client) -> None:
    def run(path: str, **fields: Any) -> Any:
        return http.post(path, json=fields).json()

    assert run("/execute", command=["echo", "a b"]) == {
        "status": "success", "output": "a b\n", "error": "", "returncode": 0,
    }  # fmt: skip
    assert run("/setup/execute", command="echo 'a b' | tr a c", shell=True)["output"] == "c b\n"
    assert run("/execute", command="echo 'a b'")["output"] == "a b\n"
    failed = run("/execute", command=["python", "-c", "raise SystemExit(3)"])
    assert (failed["status"], failed["returncode"]) == ("success", 3)
    assert http.post("/execute", json={"command": ["nothing-here"]}).status_code == 500
    assert http.post("/execute", json={"command": ["sleep", "9"], "timeout": 0.2}).status_code == 500
    assert http.post("/execute", json={"command": [1]}).status_code == 400
    assert http.post("/execute", content=b"no json").status_code == 400
    python = run("/run_python", code="print(1 + 1)")
    assert (python["status"], python["output"], python["return_code"]) == ("success", "2\n", 0)
    assert run("/run_python", code="1 / 0")["status"] == "error"
    bash = run("/run_bash_script", script="cd /usr\npwd", timeout=5)
    assert (bash["output"], bash["returncode"]) == ("/usr\n", 0)
    there = run("/execute_with_verification", command=["true"], verification={"window_exists": "termin"})
    assert there["verification"] == "passed"
    never = {"verification": {"command_success": "false"}, "max_wait_time": 0.2, "check_interval": 0.1}
    absent = http.post("/execute_with_verification", json={"command": ["true"], **never})
    assert absent.status_code == 500 and absent.json()["verification"] == "failed"


def test_windows_are_opened_activated_and_closed(http: httpx.Client) -> None:
    http.post("/setup/upload", data={"file_path": "~/b.txt"}, files={"file_data": ("b.txt", b"hello")})
    assert http.post("/setup/open_file", json={"path": "~/b.txt"}).status_code == 200
    assert "b.txt" in http.get("/accessibility").json()["AT"]
    assert http.post("/setup/activate_window", json={"window_name": "Terminal", "strict": True}).status_code == 200
    assert http.post("/setup/close_window", json={"window_name": "b.txt"}).status_code == 200
    assert http.post("/setup/open_file", json={"path": "~/none.txt"}).status_code == 404
    assert "launched" in http.post("/setup/launch", json={"command": ["xterm", "-title", "second"]}).text
    seen = http.post(
        "/execute_with_verification", json={"command": ["true"], "verification": {"window_exists": "second"}}
    )
    assert seen.json()["verification"] == "passed"
    http.post("/setup/close_window", json={"window_name": "second"})


@pytest.mark.parametrize("path", ABSENT)
def test_what_it_does_not_have_it_refuses_with_the_reason(http: httpx.Client, path: str) -> None:
    answer = http.post(path, json={})
    assert answer.status_code == 501 and answer.json()["message"] == ABSENT[path]


def test_a_page_of_another_site_or_by_another_name_runs_nothing(http: httpx.Client) -> None:
    command = json.dumps({"command": ["touch", "/tmp/taken"]})
    for headers, status in (({"Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 421)):
        assert http.post("/execute", content=command, headers=headers).status_code == status
    assert http.post("/execute", json={"command": ["ls", "/tmp/taken"]}).json()["returncode"] != 0


def test_with_a_token_nobody_is_answered_without_it() -> None:
    token = "a-token-of-some-length"
    with serving(token=token) as found, httpx.Client(base_url=found.url) as client:
        assert client.get("/screenshot").status_code == 401
        assert client.post("/execute", json={"command": ["true"]}).status_code == 401
        assert client.get("/screenshot", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_a_fresh_desktop_has_nothing_of_the_last_one_and_a_task_of_ours_has_a_verdict(http: httpx.Client) -> None:
    http.post("/execute", json={"command": ["touch", "left.txt"]})
    message = http.post("/flywheel/reset", json={"task": "make-folders", "seed": 4}).json()["instruction"]
    assert http.post("/execute", json={"command": ["ls", "left.txt"]}).json()["returncode"] != 0
    assert http.get("/flywheel/outcome").json() == {"done": False, "reward": 0.0}
    outer, inner = message.split('"')[1], message.split('"')[3]
    http.post("/execute", json={"command": ["mkdir", "-p", f"{outer}/{inner}"]})
    assert http.get("/flywheel/outcome").json() == {"done": True, "reward": 1.0}
    assert http.post("/flywheel/reset", json={"task": "no-such"}).status_code == 400
    assert http.post("/flywheel/reset", json={"seed": -1}).status_code == 400


# our own client against it

TASK = {
    "id": "note",
    "instruction": "Write {a note}.",
    "config": [
        {"type": "upload_file", "parameters": {"files": []}},
        {"type": "execute", "parameters": {"command": ["mkdir", "-p", "made"]}},
        {"type": "launch", "parameters": {"command": ["python", "WITNESS"]}},
        {"type": "sleep", "parameters": {"seconds": 0.1}},
        {"type": "command", "parameters": {"command": "ls events.txt", "shell": True, "until": {"returncode": 0}}},
    ],
    "evaluator": {
        "postconfig": [{"type": "execute", "parameters": {"command": "echo after > after.txt", "shell": True}}],
        "func": ["file_contains", "exact_match"],
        "conj": "and",
        "result": [
            {"type": "vm_file", "path": "note.txt", "dest": "note.txt"},
            {"type": "vm_command_line", "command": ["cat", "after.txt"]},
        ],
        "expected": [
            {"type": "rule", "rules": {"expected": ["hello"]}},
            {"type": "rule", "rules": {"expected": "after\n"}},
        ],
    },
}


@pytest.fixture
def environment(served: Served, tmp_path: Path) -> OsworldEnvironment:
    """The tasks of a folder on that server, each on a fresh desktop."""
    place = tmp_path / "witness.py"
    place.write_text(WITNESS)
    text = json.dumps(TASK).replace("WITNESS", ".witness.py")
    task = json.loads(text)
    task["config"][0]["parameters"]["files"] = [{"local_path": str(place), "path": ".witness.py"}]
    (tmp_path / "tasks" / "os").mkdir(parents=True)
    (tmp_path / "tasks" / "os" / "note.json").write_text(json.dumps(task))
    infeasible = {"id": "never", "instruction": "Do what cannot be done.", "evaluator": {"func": "infeasible"}}
    (tmp_path / "tasks" / "never.json").write_text(json.dumps(infeasible))
    chrome = {**task, "config": [{"type": "chrome_open_tabs", "parameters": {}}]}
    (tmp_path / "tasks" / "web.json").write_text(json.dumps(chrome))
    fields = {"kind": "osworld", "urls": [served.url], "folder": str(tmp_path / "tasks"), "reset": "request",
              "pause_s": 0.1, "wait_s": 0.1, "start_timeout_s": 20}  # fmt: skip
    return OsworldEnvironment("vms", OsworldConfig.model_validate(fields))


def written(served: Served) -> bytes:
    return httpx.post(f"{served.url}/file", data={"file_path": "events.txt"}).content


def seen(served: Served, least: int) -> list[list[Any]]:
    """What the witness says, once so much was pressed or let go (after 20 s, what came) and it says no more."""
    content, alike, late = written(served), 0, time.monotonic() + 20
    while alike < 3 or (inputs_of(rows_of(content)) < least and time.monotonic() < late):
        time.sleep(0.25)
        before, content = content, written(served)
        alike = alike + 1 if content == before else 0
    httpx.post(f"{served.url}/execute", json={"command": "truncate -s 0 events.txt", "shell": True}, timeout=20)
    return rows_of(content)


@pytest.mark.slow
def test_each_action_of_ours_reaches_x_through_pyautogui(served: Served, environment: OsworldEnvironment) -> None:
    async def run() -> None:
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("note"), 1) as sandbox:

            async def perform(*actions: act.Action, least: int = 2) -> list[list[Any]]:
                for action in actions:
                    assert await sandbox.perform(action) is None
                return await asyncio.to_thread(seen, served, least)

            first = await sandbox.observe()
            assert (first.width, first.height, first.instruction) == (CONFIG.width, CONFIG.height, "Write {a note}.")
            await perform(act.Click(x=0.3, y=0.3))
            x, y = int(0.4 * CONFIG.width), int(0.5 * CONFIG.height)
            clicked = await perform(act.Click(x=0.4, y=0.5))
            assert [one[:4] for one in clicked if one[0] == "button"] == [["button", 1, x, y]]
            doubled = await perform(act.LeftDouble(x=0.35, y=0.4), least=4)
            assert [one[1] for one in doubled if one[0] == "button"] == [1, 1]
            assert [one[1] for one in await perform(act.RightSingle(x=0.4, y=0.4)) if one[0] == "button"] == [3]
            long = [one for one in await perform(act.LongPress(x=0.4, y=0.4)) if "button" in one[0]]
            assert long[1][4] - long[0][4] >= 900
            for direction, button in (("up", 4), ("down", 5), ("left", 6), ("right", 7)):
                turned = await perform(act.Scroll(x=0.4, y=0.4, direction=direction), least=10)  # type: ignore[arg-type]
                assert [one[1] for one in turned if one[0] == "button"] == [button] * 5
            drag = await perform(act.Drag(x=0.3, y=0.4, to_x=0.5, to_y=0.5))
            assert drag[-1][:4] == ["button up", 1, int(0.5 * CONFIG.width), int(0.5 * CONFIG.height)]
            middle = await perform(act.MiddleSingle(x=0.35, y=0.45))
            assert [one[1] for one in middle if one[0] == "button"] == [2]
            tripled = await perform(act.TripleClick(x=0.4, y=0.45), least=6)
            assert [one[1] for one in tripled if one[0] == "button"] == [1, 1, 1]
            held = await perform(act.MouseDown(x=0.3, y=0.4, button="right"), act.Move(x=0.5, y=0.5), least=1)
            assert [one[:2] for one in held if "button" in one[0]] == [["button", 3]]
            assert (await perform(act.MouseUp(button="right"), least=1))[-1][:4] == ["button up", 3, *drag[-1][2:4]]
            chord = await perform(act.Hotkey(key="ctrl shift s"), least=6)
            assert [one[0] for one in chord] == ["key"] * 3 + ["key up"] * 3 and chord[0][1] == 0xFFE3
            held = await perform(act.Press(key="shift"), act.Hotkey(key="f5"), act.Release(key="shift"), least=4)
            assert [one[0] for one in held] == ["key", "key", "key up", "key up"]
            typed = await perform(act.Type(content="aZ 9\t\n"), least=12)
            assert [one[1] for one in typed if one[0] == "key" and one[1] != 0xFFE1] == [
                *map(ord, "aZ 9"), 0xFF09, 0xFF0D,
            ]  # fmt: skip
            pasted = await perform(act.Type(content="é漢<"), least=4)
            assert [one[1] for one in pasted if one[0] == "key"] == [0xFFE3, ord("v")]
            assert (await asyncio.to_thread(served.ask, "clipboard"))["text"] == "é漢<"
            assert await perform(act.Wait(), least=0) == []

    asyncio.run(run())


@pytest.mark.slow
def test_text_of_any_script_is_in_the_file_in_the_end_and_the_evaluator_says_so(
    served: Served, environment: OsworldEnvironment
) -> None:
    async def run() -> tuple[Outcome, bytes, Outcome]:
        async with SandboxPool([environment]) as pool:
            async with pool.lease(environment.task("note"), 1) as sandbox:
                await asyncio.to_thread(served.ask, "open", command=["mousepad", "note.txt"], window_s=10)
                await asyncio.to_thread(served.ask, "rest", rest_s=5)
                await sandbox.perform(act.Type(content=f"hello {TEXT}"))
                await sandbox.perform(act.Hotkey(key="ctrl s"))
                done = await sandbox.verify(OsworldReward())
                held = httpx.post(f"{served.url}/file", data={"file_path": "note.txt"}).content
            async with pool.lease(environment.task("note"), 1) as sandbox:
                return done, held, await sandbox.verify(OsworldReward())

    done, held, undone = asyncio.run(run())
    assert held.decode().strip() == f"hello {TEXT}"
    assert done == Outcome(True, 1.0) and undone == Outcome(True, 0.0)


@pytest.mark.parametrize(("end", "reward"), [(act.CallUser(), 1.0), (act.Finished(), 0.0), (None, 0.0)])
def test_only_whoever_says_that_it_cannot_be_done_is_right_where_it_cannot(
    environment: OsworldEnvironment, end: act.Finished | act.CallUser | None, reward: float
) -> None:
    async def run() -> Outcome:
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("never"), 1) as sandbox:
            if end is not None:
                await sandbox.conclude(end)
            return await sandbox.verify(OsworldReward())

    assert asyncio.run(run()) == Outcome(True, reward)


def test_doctor_says_which_tasks_are_open_and_why(environment: OsworldEnvironment, sentence: Sentences) -> None:
    tasks, machines = (probe.check() for probe in environment.probes())
    assert tasks.ok
    sentence(tasks.detail, "chrome_open_tabs")
    assert machines.ok and f"{CONFIG.width} x {CONFIG.height}" in machines.detail
    assert set(environment.entries) == {"note", "never"}
    assert not environment.entries["note"].deterministic


def test_a_python_error_over_there_is_said_and_an_impossible_action_is_the_policy_s(
    environment: OsworldEnvironment,
) -> None:
    broken = environment.config.model_copy(update={"python": "false"})

    async def run() -> None:
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("never"), 1) as sandbox:
            with pytest.raises(ActionFailure):
                await sandbox.perform(act.PressHome())
        other = OsworldEnvironment("vms", broken)
        async with SandboxPool([other]) as pool, pool.lease(other.task("never"), 1) as sandbox:
            assert isinstance(sandbox, OsworldSandbox)
            assert await sandbox.perform(act.Click(x=0.5, y=0.5)) == "pyautogui: no reason given"

    asyncio.run(run())


def test_a_machine_that_is_gone_is_an_environment_failure(environment: OsworldEnvironment, served: Served) -> None:
    async def run() -> None:
        with pytest.raises(SandboxFailure, match="the desktop"):
            async with SandboxPool([environment]) as pool, pool.lease(environment.task("never"), 1) as sandbox:
                served.machine.box.kill()
                await sandbox.perform(act.Click(x=0.5, y=0.5))

    asyncio.run(run())
