"""P(V=1 | iteration), against a lake small enough to count by hand."""

import pytest

from storage.lake import Lake
from tasks.shared.status import iterations, verified


@pytest.fixture
def play(lake: Lake, row):
    def write(name: str, route: str, policy: str = "policy", iteration: int = 1) -> None:
        lake.append("trajectories", [row("trajectories", trajectory_id=name, policy=policy, iteration=iteration)])
        lake.append("verdicts", [row("verdicts", trajectory_id=name, route=route, iteration=iteration)])

    return write


def test_environment_failures_enter_no_rate_and_players_are_kept_apart(lake: Lake, play) -> None:
    for name, route in (("a", "sft"), ("b", "ct"), ("c", "ct"), ("d", "none")):
        play(name, route)
    play("e", "sft", policy="explorer")
    rates = {row["kind"]: (row["rate"], row["n"]) for row in verified(lake)}
    assert rates == {"policy": (pytest.approx(1 / 3), 3), "explorer": (1.0, 1)}


def test_an_iteration_tells_its_own_rate_and_nothing_where_the_policy_did_not_play(lake: Lake, play) -> None:
    play("a", "sft", policy="explorer", iteration=0)
    play("b", "sft", iteration=1)
    play("c", "ct", iteration=1)
    first, second = iterations(lake)
    assert first["verified"] is None
    assert second["verified"]["rate"] == 0.5 and second["verified"]["n"] == 2
    assert second["verified"]["ci"][0] < 0.5 < second["verified"]["ci"][1]


def test_plays_no_gate_has_seen_are_left_out(lake: Lake, row) -> None:
    lake.append("trajectories", [row("trajectories")])
    assert verified(lake) == []
