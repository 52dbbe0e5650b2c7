"""`flywheel tasks list`: the config's tasks, and all that can be played."""

import json
from typing import Any

from environments.registry import ENVIRONMENTS
from tests.command import Call

FAKE = (
    'environments={"mine":{"kind":"fake"}}',
    'suite.tasks=["click-target"]',
    "suite.held_out=[]",
    "suite.practice=[]",
    "suite.hard=[]",
)


def tasks(flywheel: Call, *words: str) -> dict[str, Any]:
    code, out, _ = flywheel("tasks", "list", "--json", *words)
    assert code == 0
    return json.loads(out)


def test_all_tasks_are_those_of_the_config_and_of_every_environment(flywheel: Call) -> None:
    (own,) = tasks(flywheel, *FAKE)["tasks"]
    assert (own["task"], own["status"]) == ("mine/click-target", "catalog")
    found = tasks(flywheel, "--all", *FAKE)
    of = {row["task"]: row["status"] for row in found["tasks"]}
    assert of["mine/click-target"] == "catalog" and of["mine/two-steps"] == "available"
    listed = {name.partition("/")[0] for name in of}
    assert {"miniwob", "games", "pages", "repair", "search", "desktop"} <= listed and "fake" not in listed
    assert listed | {*found["missing"]} == {*ENVIRONMENTS.names, "mine"} - {"fake"}
    assert "environments.openenv.url" in found["missing"]["openenv"]
    assert len(of) == len(found["tasks"])


def test_an_environment_without_tasks_is_named_with_its_key(flywheel: Call) -> None:
    _, out, err = flywheel("tasks", "list", "--all", *FAKE)
    assert "balloons-1" in out and "no tasks of openenv: " in err
