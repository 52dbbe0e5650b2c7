"""A paused wheel begins nothing new, ends at the next boundary, and goes on where it stood."""

import threading
import time

import pytest
from prefect import get_client

from flows.flywheel import collect, flywheel
from flows.policies import retrain
from storage.lake import Lake
from tasks.running.budget import Pause, pause, resume
from tasks.running.iterations import finished_iterations
from tasks.shared.lease import require_free
from tests.flows.conftest import Turned


def stages(lake: Lake) -> set[str]:
    return set(lake.read("stages", ["stage"], {"iteration": 0})["stage"].to_pylist())


@pytest.mark.slow
def test_a_run_ends_before_the_next_stage_says_why_and_goes_on_after_resume(
    turned: Turned, capfd: pytest.CaptureFixture[str]
) -> None:
    small = turned(0)
    lake = Lake.open(small.lake)

    def pause_once_collected() -> None:
        while "collect" not in stages(lake):
            time.sleep(0.02)
        pause(lake, "I look at the\n\x1b[31mfirst ones", "ann")

    person = threading.Thread(target=pause_once_collected)
    person.start()
    ended = flywheel(small, iterations=1)
    person.join()
    assert isinstance(ended, Pause) and (ended.by, ended.reason[:9]) == ("ann", "I look at")
    said = capfd.readouterr().err
    assert "by ann: I look at the [31mfirst ones. After `flywheel resume`" in said and "Traceback" not in said
    before = stages(lake)
    assert "collect" in before and "promote" not in before
    require_free(lake)
    with get_client(sync_client=True) as client:
        assert ("Paused", "COMPLETED") in {(run.state_name, run.state_type) for run in client.read_flow_runs(limit=200)}

    for flow in (flywheel, collect, retrain):
        assert isinstance(flow(small), Pause)
    assert stages(lake) == before
    assert resume(lake) and not resume(lake)
    assert flywheel(small, iterations=1) is None
    assert finished_iterations(lake) == [0]
