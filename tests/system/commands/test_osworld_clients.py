"""Others' own controllers of OSWorld's machines drive our desktop: those of `desktop_env`, and CUBE's computer tool.

Neither fits beside this project's packages, so variables name them (docs/desktop.md): FLYWHEEL_OSWORLD_PATH is a
folder with `desktop_env` in it, FLYWHEEL_CUBE_PYTHON a Python 3.12 with `cube-computer-tool`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.desktops import CONFIG, ON_OSWORLD_S
from tests.tiers import lacks
from tests.unit.apps.osworld.served import serving

OSWORLD, CUBE = os.environ.get("FLYWHEEL_OSWORLD_PATH"), os.environ.get("FLYWHEEL_CUBE_PYTHON")
pytestmark = ON_OSWORLD_S

CONTROLLER = """
import json, sys
from desktop_env.controllers.python import PythonController
here = PythonController("127.0.0.1", int(sys.argv[1]))
here.retry_times, said = 1, {}
for kind, fields in json.loads(sys.argv[2]):
    here.execute_action({"action_type": kind, "parameters": fields})
said["screenshot"] = here.get_screenshot()[:8].hex()
said["tree"] = here.get_accessibility_tree()
said["size"] = here.get_vm_screen_size()
said["window"] = here.get_vm_window_size("xterm")
said["platform"] = here.get_vm_platform()
said["home"] = here.get_vm_desktop_path()
said["listed"] = here.get_vm_directory_tree(said["home"])
said["file"] = here.get_file(".bashrc").decode()
said["script"] = here.run_bash_script("echo $((6 * 7))")["output"]
said["python"] = here.run_python_script("print(6 * 7)")["output"]
print(json.dumps(said))
"""
CUBE_PLAYS = """
import sys
from cube.core import Action
from cube_computer_tool import ActionSpace, ComputerConfig
tool = ComputerConfig(action_space=ActionSpace(sys.argv[2])).make()
tool.attach_endpoint(sys.argv[1])
name, key = ("typing", "text") if sys.argv[2] == "computer_13" else ("run_pyautogui", "code")
seen = tool.execute_action(Action(name=name, arguments={key: sys.argv[3]}))
assert any(type(one).__name__ == "ImageContent" for one in seen.contents), seen
tool.execute_action(Action(name="done", arguments={}))
"""


def run(python: str, script: str, *arguments: str, path: str = "") -> str:
    done = subprocess.run(
        [python, "-c", script, *arguments], capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def line_for(instruction: str) -> str:
    """What solves `make-folders` in a shell."""
    outer, inner = instruction.split('"')[1], instruction.split('"')[3]
    return f"mkdir -p {outer}/{inner}\n"


@pytest.mark.skipif(
    OSWORLD is None,
    reason=lacks("no desktop_env in FLYWHEEL_OSWORLD_PATH", "pip download desktop-env (docs/osworld.md)"),
)
def test_osworld_s_own_controller_reads_our_desktop_and_solves_a_task_with_all_of_its_actions() -> None:
    with serving(task="make-folders") as found:
        message = httpx.post(f"{found.url}/flywheel/reset", json={"seed": 7}).json()["instruction"]
        actions: list[tuple[str, dict[str, Any]]] = [
            ("MOVE_TO", {"x": 500, "y": 300}),
            ("CLICK", {"x": 500, "y": 300, "button": "left"}),
            ("MOUSE_DOWN", {}),
            ("MOUSE_UP", {}),
            ("DOUBLE_CLICK", {"x": 500, "y": 300}),
            ("SCROLL", {"dx": 0, "dy": -2}),
            ("DRAG_TO", {"x": 450, "y": 320}),
            ("KEY_DOWN", {"key": "shift"}),
            ("KEY_UP", {"key": "shift"}),
            ("HOTKEY", {"keys": ["ctrl", "u"]}),
            ("TYPING", {"text": line_for(message).strip()}),
            ("PRESS", {"key": "enter"}),
        ]
        port = found.url.rpartition(":")[2]
        answer = json.loads(run(sys.executable, CONTROLLER, port, json.dumps(actions), path=f"{OSWORLD}"))
        assert httpx.get(f"{found.url}/flywheel/outcome").json() == {"done": True, "reward": 1.0}
    assert answer["screenshot"] == b"\x89PNG\r\n\x1a\n".hex() and "Terminal" in answer["tree"]
    assert answer["size"] == {"width": CONFIG.width, "height": CONFIG.height} and answer["window"]["width"] > 100
    assert (answer["platform"], answer["script"], answer["python"]) == ("Linux", "42\n", "42\n")
    assert answer["listed"]["type"] == "directory" and "PS1" in answer["file"]


@pytest.mark.skipif(
    CUBE is None,
    reason=lacks(
        "no cube-computer-tool in FLYWHEEL_CUBE_PYTHON", "pip install cube-computer-tool==0.2.0 (docs/osworld.md)"
    ),
)
@pytest.mark.parametrize("space", ["computer_13", "pyautogui"])
def test_cube_s_computer_tool_solves_a_task_of_ours(space: str) -> None:
    assert CUBE is not None and Path(CUBE).exists()
    with serving(task="make-folders") as found:
        message = httpx.post(f"{found.url}/flywheel/reset", json={"seed": 9}).json()["instruction"]
        typed = line_for(message)
        run(CUBE, CUBE_PLAYS, found.url, space, typed if space == "computer_13" else f"pyautogui.write({typed!r})")
        assert httpx.get(f"{found.url}/flywheel/outcome").json() == {"done": True, "reward": 1.0}
