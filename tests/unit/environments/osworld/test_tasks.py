"""OSWorld's task files and scores, without a machine; and what a broken machine comes to."""

import asyncio
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from environments.osworld.client import VmClient
from environments.osworld.environment import OsworldConfig, OsworldEnvironment, OsworldReward
from environments.osworld.scores import SCORES
from environments.osworld.tasks import read, read_tasks
from environments.pool import SandboxPool
from schemas import action as act
from schemas.failure import SandboxFailure, TrajectoryFailure, UsageError
from tests.fixtures.sentences import Sentences


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 3)).save(stream, "png")
    return stream.getvalue()


PNG = picture()


def task(**evaluator: Any) -> dict[str, Any]:
    return {"id": "x", "instruction": "Do it.", "config": [], "evaluator": evaluator}


def written(folder: Path, **tasks: dict[str, Any]) -> Path:
    for name, fields in tasks.items():
        (folder / f"{name}.json").write_text(json.dumps(fields))
    return folder


RULE = {"type": "rule", "rules": {"expected": "1\n"}}
FAILED = "__EVALUATION_FAILED__"
COUNT = {"type": "vm_command_line", "command": ["echo", "1"]}


def test_one_score_and_several_are_read_and_what_is_not_known_is_open_with_its_reason(tmp_path: Path) -> None:
    found = read_tasks(
        written(
            tmp_path,
            one=task(func="exact_match", result=COUNT, expected=RULE),
            two=task(func=["exact_match", "match_in_list"], conj="or", result=[COUNT, COUNT], expected=[RULE, RULE]),
            never=task(func="infeasible"),
            score=task(func="compare_docx_files", result=COUNT, expected=RULE),
            reading=task(func="exact_match", result={"type": "googledrive_file"}, expected=RULE),
            step={**task(func="infeasible"), "config": [{"type": "login", "parameters": {}}]},
            uneven=task(func=["exact_match", "exact_match"], result=[COUNT], expected=[RULE]),
            nothing={"id": "y"},
            words={"id": "z", "instruction": "Do it.", "evaluator": "exact_match"},
            path=task(func="exact_match", result={"type": "vm_file", "path": "/a"}, expected=RULE),
            output=task(func="check_list", result=COUNT, expected={"type": "rule", "rules": {"expect": ["1"]}}),
        )
    )
    assert found.known.keys() == {"one", "two", "never"}
    assert len(found.known["two"].metrics) == 2 and found.known["two"].any_of and found.known["never"].infeasible
    assert found.open["score"] == "score compare_docx_files" and found.open["step"] == "step login"
    assert found.open["reading"] == "reading googledrive_file" and found.open.keys() >= {"uneven", "nothing", "words"}
    assert found.open["path"] == "score exact_match of vm_file" and found.open["output"].endswith("of vm_command_line")
    assert "8 are open" in found.summary() and "step login (1)" in found.summary()


def test_a_folder_that_is_not_there_and_two_files_of_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        read_tasks(tmp_path / "none")
    (tmp_path / "a").mkdir()
    written(tmp_path, one=task(func="infeasible"))
    written(tmp_path / "a", one=task(func="infeasible"))
    with pytest.raises(UsageError, match=r"one\.json"):
        read_tasks(tmp_path)


@pytest.mark.parametrize(
    ("score", "read", "expected", "options", "worth"),
    [
        ("exact_match", "a\n", {"expected": "a\n"}, {}, 1),
        ("exact_match", "a", {"expected": "a\n"}, {}, 0),
        ("exact_match", None, {"expected": "a"}, {}, 0),
        ("match_in_list", "b", {"expected": ["a", "b"]}, {}, 1),
        ("match_in_list", "c", {"expected": ["a", "b"]}, {}, 0),
        ("is_in_list", ["a", "b"], {"expected": "a"}, {}, 1),
        ("is_in_list", None, {"expected": "a"}, {}, 0),
        ("literal_match", 12, "12", {}, 1),
        ("literal_match", "Ab", "aB", {}, 0),
        ("literal_match", "Ab", "aB", {"ignore_case": True}, 1),
        ("literal_match", ["a", 1], ["A", "1"], {"type": "list", "ignore_case": True}, 1),
        ("literal_match", ["a"], ["a", "b"], {"type": "list"}, 0),
        ("match_in_list", None, {"expected": "abc"}, {}, 0),
        ("match_in_list", "b", {"expected": "abc"}, {}, 1),
        ("check_include_exclude", {"name": "two"}, {"include": ["name"], "exclude": ["two"]}, {}, 1),
        ("check_include_exclude", "one two", {"include": ["one"], "exclude": ["three"]}, {}, 1),
        ("check_include_exclude", "one three", {"include": ["one"], "exclude": ["three"]}, {}, 0),
        ("check_include_exclude", None, {"exclude": ["three"]}, {}, 0),
        ("check_list", b"apple\npear\n", {"expect": ["^app"], "unexpect": ["plum"]}, {}, 1),
        ("check_list", b"apple\nplum\n", {"expect": ["^app"], "unexpect": ["plum"]}, {}, 0),
        ("file_contains", b"one two", {"expected": ["one", "two"]}, {}, 1),
        ("check_list", b"apple \x0bpear\r\n", {"expect": [r"^apple .pear\n$"]}, {}, 1),
        ("file_contains", b"", {"expected": ["one"]}, {}, 0),
        ("file_contains", b"", {"expected": []}, {}, 1),
        ("file_contains", b"eno", {"expected": "one"}, {}, 1),
        ("compare_text_file", b"a\r\nb\r", b"a\nb\n", {}, 1),
        ("compare_text_file", b"a\r\n", b"a\n\n", {}, 0),
        ("compare_text_file", b"", b"", {}, 1),
        ("compare_text_file", b"\xff", b"\xff", {}, 0),
        ("compare_text_file", b"a  b\n", b"a b", {"ignore_blanks": True}, 1),
        ("compare_text_file", b"A", b"a", {"ignore_case": True}, 1),
        ("compare_text_file", b"A", b"a", {}, 0),
        ("compare_text_file", None, b"a", {}, 0),
        ("diff_text_file", b"a\nb\n", b"a\nc\n", {}, 0.5),
        ("check_direct_json_object", '{"a": 1, "b": 2}', {"expected": {"a": 1}}, {}, 1),
        ("check_direct_json_object", '{"a": 2}', {"expected": {"a": 1}}, {}, 0),
        ("check_direct_json_object", "{'a': 'x'}", {"expected": {"a": "x"}}, {}, 1),
        ("check_direct_json_object", "{'a': 'x'}", {"expected": {"a": "y"}}, {}, 0),
        ("check_direct_json_object", {"a": [2, 1]}, {"expected": {"a": [1, 2]}}, {}, 0),
        ("check_direct_json_object", {"a": "x"}, {"expected": {"a": ["x", "y"]}, "expect_in_result": True}, {}, 1),
        ("check_direct_json_object", {"a": "xy"}, {"expected": {"a": ["x", "y"]}, "expect_in_result": True}, {}, 0),
        ("check_direct_json_object", [], {"expected": {}}, {}, 1),
        ("check_direct_json_object", None, {"expected": {}}, {}, 0),
        ("check_direct_json_object", {"a": FAILED}, {"expected": {"a": FAILED}}, {}, 0),
        ("check_direct_json_object", "[" * 100_000, {"expected": {"a": 1}}, {}, 0),
        ("check_direct_json_object", "no json", {"expected": {"a": 1}}, {}, 0),
        ("check_direct_json_object", {"a": ["x"]}, {"expected": {"a": ["x", "y"]}, "expect_in_result": True}, {}, 1),
        ("check_direct_json_object", {"a": ["z"]}, {"expected": {"a": ["x"]}, "expect_in_result": True}, {}, 0),
    ],
)  # fmt: skip
def test_a_score_is_what_osworld_s_evaluator_of_that_name_says(
    score: str, read: Any, expected: Any, options: dict[str, Any], worth: float
) -> None:
    assert SCORES[score](read, expected, **options) == worth


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"urls": []}, "urls"),
        ({"urls": ["vm:5000"]}, "vm:5000"),
        ({"urls": ["http://a:1", "http://a:1"]}, "twice"),
        ({"reset": "command"}, "reset_command"),
        ({"reset_command": ["x"]}, "reset_command"),
        ({"reset": "now"}, "reset"),
        ({"paste": "ctrl hyper"}, "paste"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused_by_its_key(fields: dict[str, Any], named: str) -> None:
    whole = {"kind": "osworld", "urls": ["http://a:1"], "folder": "x", "reset": "none", **fields}
    with pytest.raises(ValueError, match=named):
        OsworldConfig.model_validate(whole)


Answer = Callable[[str], tuple[int, bytes]]


@contextmanager
def machine(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """A machine that answers as a test says, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append(self.path)
            status, body = answer(self.path)
            if not status:  # the connection ends without an answer
                return
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def environment(url: str, folder: Path, **fields: Any) -> OsworldEnvironment:
    whole = {
        "kind": "osworld",
        "urls": [url],
        "folder": str(folder),
        "reset": "none",
        "pause_s": 0,
        "start_timeout_s": 3,
    }
    return OsworldEnvironment("vms", OsworldConfig.model_validate({**whole, **fields}))


def well(path: str) -> tuple[int, bytes]:
    if path == "/screenshot":
        return 200, PNG
    return 200, json.dumps({"status": "success", "output": "1\n", "error": "", "returncode": 0}).encode()


@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        ("/execute", (500, b"oh"), "answers 500: oh"),
        ("/execute", (200, b"no json"), "not answer with JSON"),
        ("/execute", (200, b'{"status": "error"}'), "returns no output"),
        ("/screenshot", (200, b"no picture"), "is not an image"),
        ("/screenshot", (200, PNG[:-8]), "cut short"),
    ],
)
def test_a_broken_answer_is_the_machine_s_failure_and_nothing_is_asked_twice(
    tmp_path: Path, path: str, answer: tuple[int, bytes], reason: str
) -> None:
    broken = False

    def answers(asked: str) -> tuple[int, bytes]:
        return answer if broken and asked == path else well(asked)

    async def run(url: str) -> None:
        nonlocal broken
        vms = environment(url, written(tmp_path, one=task(func="exact_match", result=COUNT, expected=RULE)))
        async with SandboxPool([vms]) as pool, pool.lease(vms.task("one"), 0) as sandbox:
            broken = True
            await sandbox.perform(act.Click(x=0.5, y=0.5))
            await sandbox.observe()

    with machine(answers) as (url, asked):
        with pytest.raises(SandboxFailure, match=reason):
            asyncio.run(run(url))
        assert asked.count("/execute") == 1


@pytest.mark.parametrize(("reset", "releases"), [("none", 2), ("request", 0)])
def test_what_is_held_is_released_at_the_end_on_a_machine_that_is_not_reset(
    tmp_path: Path, reset: str, releases: int
) -> None:
    async def run(url: str) -> None:
        vms = environment(
            url, written(tmp_path, one=task(func="exact_match", result=COUNT, expected=RULE)), reset=reset
        )
        async with SandboxPool([vms]) as pool, pool.lease(vms.task("one"), 0) as sandbox:
            for action in (act.MouseDown(x=0.5, y=0.5, button="right"), act.Press(key="shift"), act.Press(key="shift")):
                await sandbox.perform(action)

    with machine(well) as (url, asked):
        asyncio.run(run(url))
        assert asked.count("/execute") == 3 + releases


def test_one_zero_of_several_scores_is_zero_and_with_or_one_is_enough(tmp_path: Path) -> None:
    other = {"type": "rule", "rules": {"expected": "2\n"}}
    both = {"func": ["exact_match", "exact_match"], "result": [COUNT, COUNT], "expected": [RULE, other]}
    written(tmp_path, all=task(**both), any=task(**both, conj="or"), odd=task(func="exact_match", result=COUNT))

    async def run(url: str, template: str) -> float:
        vms = environment(url, tmp_path)
        async with SandboxPool([vms]) as pool, pool.lease(vms.task(template), 0) as sandbox:
            return (await sandbox.verify(OsworldReward())).reward

    with machine(well) as (url, _):
        assert asyncio.run(run(url, "all")) == 0.0
        assert asyncio.run(run(url, "any")) == 1.0
        with pytest.raises(TrajectoryFailure, match="exact_match"):
            asyncio.run(run(url, "odd"))


FILE = {"type": "vm_file", "path": "/a"}
BOTH = {"type": "vm_file", "path": ["/a", "/b"], "multi": True, "gives": [1, 0]}


@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_machine_that_says_it_is_unable_once_the_policy_has_played_scores_what_osworld_scores(
    tmp_path: Path, status: int
) -> None:
    steps = [{"type": "activate_window", "parameters": {"window_name": "x"}}]
    after = {"postconfig": [*steps, {"type": "open", "parameters": {"path": "/a"}}]}
    written(
        tmp_path,
        command=task(func="exact_match", result=COUNT, expected=RULE),
        file=task(func="compare_text_file", result=FILE, expected=FILE),
        files=task(func="compare_text_file", result=BOTH, expected=FILE),
        listed=task(func="is_in_list", result={"type": "list_directory", "path": "/a"}, expected=RULE),
        steps=task(func="exact_match", result=COUNT, expected=RULE, **after),
    )
    unable = set[str]()

    async def run(url: str, template: str, *paths: str) -> float:
        vms = environment(url, tmp_path)
        unable.clear()
        async with SandboxPool([vms]) as pool, pool.lease(vms.task(template), 0) as sandbox:
            unable.update(paths)
            return (await sandbox.verify(OsworldReward())).reward

    with machine(lambda path: (status, b"{}") if path in unable else well(path)) as (url, _):
        assert asyncio.run(run(url, "command")) == 1.0 and asyncio.run(run(url, "file")) == 1.0
        assert asyncio.run(run(url, "command", "/execute")) == 0.0
        assert asyncio.run(run(url, "file", "/file")) == asyncio.run(run(url, "files", "/file")) == 0.0
        assert asyncio.run(run(url, "listed", "/list_directory")) == 0.0
        assert asyncio.run(run(url, "steps", "/setup/activate_window", "/setup/open_file")) == 1.0


def test_a_machine_is_no_score_that_is_gone_or_is_not_reached_or_is_unable_before_the_policy_plays(
    tmp_path: Path,
) -> None:
    steps = [{"type": "activate_window", "parameters": {"window_name": "x"}}]
    written(
        tmp_path,
        command=task(func="exact_match", result=COUNT, expected=RULE),
        before={**task(func="infeasible"), "config": steps},
    )

    async def run(url: str, template: str) -> None:
        vms = environment(url, tmp_path)
        async with SandboxPool([vms]) as pool, pool.lease(vms.task(template), 0) as sandbox:
            await sandbox.verify(OsworldReward())

    def fails(template: str, reason: str, path: str, status: int) -> None:
        answers = machine(lambda asked: (status, b"oh") if asked == path else well(asked))
        with answers as (url, _), pytest.raises(SandboxFailure, match=reason):
            asyncio.run(run(url, template))

    for status in (401, 502, 503):
        fails("command", f"answers {status}: oh", "/execute", status)
    fails("command", "does not answer", "/execute", 0)
    fails("before", "answers 404: oh", "/setup/activate_window", 404)


def test_commands_that_are_executed_name_the_machine_s_password_and_screen_and_nothing_else_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    async def execute(vm: VmClient, command: Any, shell: bool = False) -> dict[str, Any]:
        told.append(command)
        return {"status": "success", "output": "", "error": "", "returncode": 1}

    async def post(vm: VmClient, path: str, fields: Any) -> None:
        told.append(fields["command"])

    monkeypatch.setattr(VmClient, "execute", execute)
    monkeypatch.setattr(VmClient, "post", post)
    size = "click({SCREEN_WIDTH_HALF}, {SCREEN_HEIGHT_HALF}) of {SCREEN_WIDTH} x {SCREEN_HEIGHT}, {OTHER}"
    steps = [
        {"type": "execute", "parameters": {"command": ["python", "-c", size]}},
        {"type": "command", "parameters": {"command": "echo {CLIENT_PASSWORD} | sudo -S true", "shell": True}},
        {"type": "launch", "parameters": {"command": ["echo", "{CLIENT_PASSWORD}"]}},
    ]
    after = {"postconfig": [steps[1]]}
    seen = {"type": "vm_command_line", "command": "echo {SCREEN_WIDTH}"}
    written(tmp_path, one={**task(func="exact_match", result=seen, expected=RULE, **after), "config": steps})

    async def run(url: str, **fields: Any) -> None:
        vms = environment(url, tmp_path, **fields)
        async with SandboxPool([vms]) as pool, pool.lease(vms.task("one"), 0) as sandbox:
            await sandbox.verify(OsworldReward())

    with machine(well) as (url, _):
        asyncio.run(run(url))
        assert told == [
            ["python", "-c", "click(2, 1) of 4 x 3, {OTHER}"], "echo password | sudo -S true",
            ["echo", "{CLIENT_PASSWORD}"], "echo password | sudo -S true", "echo {SCREEN_WIDTH}",
        ]  # fmt: skip
        asyncio.run(run(url, client_password="other"))
        assert told.count("echo other | sudo -S true") == 2 and len(told) == 10


@pytest.mark.parametrize("parameters", [{}, {"command": 5}, {"command": ["a", 5]}])
def test_a_command_that_is_none_is_the_task_s_failure_and_is_not_sent(
    tmp_path: Path, parameters: dict[str, Any], sentence: Sentences
) -> None:
    step = {"type": "execute", "parameters": parameters}
    written(tmp_path, one={**task(func="infeasible"), "config": [step]})

    async def run(url: str) -> None:
        vms = environment(url, tmp_path)
        async with SandboxPool([vms]) as pool, pool.lease(vms.task("one"), 0):
            pass

    with machine(well) as (url, asked):
        with sentence.raises(SandboxFailure):
            asyncio.run(run(url))
        assert "/execute" not in asked


def test_of_several_files_those_that_are_given_keep_the_order_of_the_paths() -> None:
    async def found(url: str, **fields: Any) -> Any:
        vm = VmClient(url, None, 3)
        return await read(vm, {"type": "vm_file", "path": ["/a", "/b", "/c"], "multi": True, **fields})

    names = iter("abcabc")
    with machine(lambda _: (200, next(names).encode())) as (url, _):
        assert asyncio.run(found(url, gives=[2, 0])) == [b"a", b"b"]
        assert asyncio.run(found(url)) == b"c"


def test_a_machine_is_brought_back_by_the_command_of_the_config_or_the_lease_fails(
    tmp_path: Path, sentence: Sentences
) -> None:
    written(tmp_path, one=task(func="infeasible"))
    mark = tmp_path / "mark"

    async def run(url: str, *command: str) -> None:
        vms = environment(url, tmp_path, reset="command", reset_command=command)
        async with SandboxPool([vms]) as pool, pool.lease(vms.task("one"), 0) as sandbox:
            await sandbox.observe()

    with machine(well) as (url, _):
        asyncio.run(run(url, "sh", "-c", f"echo {{url}} > {mark}"))
        assert mark.read_text().strip() == url
        with sentence.raises(SandboxFailure):
            asyncio.run(run(url, "sh", "-c", "echo no snapshot >&2; exit 3"))
        with pytest.raises(SandboxFailure, match="nowhere"):
            asyncio.run(run(url, "/nowhere"))


def test_a_machine_that_never_answers_is_named_by_doctor(tmp_path: Path) -> None:
    vms = environment("http://127.0.0.1:9", written(tmp_path, one=task(func="infeasible")))
    check = vms.probes()[1].check()
    assert not check.ok and "http://127.0.0.1:9" in check.detail and "environments.vms.urls" in check.detail
