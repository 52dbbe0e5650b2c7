"""`flywheel sandboxes` and `flywheel environments`, for people and for programs."""

import json
import time
from typing import Any

from environments.leased import Leased
from tasks.running.run_status import RunStatus, file_of
from tests.command import Call
from tests.fixtures.sentences import Sentences


def test_what_is_leased_is_listed_with_its_kind_trajectory_age_silence_and_memory(
    flywheel: Call, place: Any, sentence: Sentences
) -> None:
    name, heard = file_of("00000000-0000-7000-8000-000000000001"), time.time()
    leased = Leased(
        lease=4, environment="fake", kind="fake", task_id="fake/two-steps", seed=7, trajectory_id="0a1b2c3d4e5f",
        since=heard - 20, silent_s=3.0, host_mb=181.6, own_mb=12.3,
    )  # fmt: skip
    place.lake.blobs.store.put(
        name, RunStatus(run_id="a run", heard=heard, sandboxes=(leased,)).model_dump_json().encode()
    )
    try:
        code, shown, _ = flywheel("sandboxes", "--config", place.file)
        _, out, _ = flywheel("sandboxes", "--json", "--config", place.file)
    finally:
        place.lake.blobs.store.delete(name)
    assert code == 0
    lines = shown.splitlines()
    assert lines[1].split() == ["4", "fake", "fake/two-steps", "7", "0a1b2c3d", "20", "s", "3", "s", "182", "12"]
    sentence(lines[2])
    (one,) = json.loads(out)["sandboxes"]
    assert (one["lease"], one["trajectory_id"], one["run_id"]) == (4, "0a1b2c3d4e5f", "a run")
    assert (one["host_mb"], one["own_mb"]) == (181.6, 12.3)


def test_a_lake_on_which_nothing_runs_has_no_sandbox_leased(flywheel: Call, place: Any, sentence: Sentences) -> None:
    sentence(flywheel("sandboxes", "--config", place.file)[1])


def test_environments_are_the_configs_and_the_built_in_kinds_with_what_they_lack(
    flywheel: Call, place: Any, sentence: Sentences
) -> None:
    code, out, _ = flywheel("environments", "--json", "--config", place.file, "environments.miniwob.browser=/nowhere")
    assert code == 0
    found = {one["name"]: one for one in json.loads(out)["environments"]}
    assert (found["fake"]["configured"], found["fake"]["ready"]) == (True, True)
    assert found["fake"]["tasks"] > 0
    assert (found["miniwob"]["configured"], found["miniwob"]["ready"]) == (True, False)
    sentence(found["miniwob"]["lacks"])
    assert (found["openenv"]["configured"], found["openenv"]["ready"]) == (False, False)
    sentence(found["openenv"]["lacks"], "environments.openenv.url")
    shown = flywheel("environments", "--config", place.file)[1]
    assert shown.splitlines()[1].split()[:2] == ["fake", "fake"]
    assert "ready" in shown
