"""A simulated fleet obeys what queues obey, and loses nothing when sandboxes and machines die."""

from dataclasses import replace

import pytest

from benchmarks.fleet.simulation import Costs, Fleet, collect, paces

COSTS = Costs(0.02, (1, 2, 3), 0.001, 0.05, 0.002, 0.0, 0.2, 100.0)
FLEET = Fleet(40, 20, 4, 1.0, 10, 1e12, 30.0)


def pace(costs: Costs, fleet: Fleet, count: int = 4000) -> float:
    found = collect(costs, fleet, count)
    assert found.committed == count
    return found.pace


@pytest.mark.parametrize(
    ("costs", "fleet", "part"),
    [
        (COSTS, FLEET, "sandboxes"),
        (replace(COSTS, screen_s=0.5), replace(FLEET, cores=2), "processors"),
        (replace(COSTS, commit_s=5.0), FLEET, "log"),
    ],
)
def test_the_pace_is_that_of_the_part_that_can_bear_least(costs: Costs, fleet: Fleet, part: str) -> None:
    paper = paces(costs, fleet)
    assert min(paper, key=lambda name: paper[name]) == part
    assert pace(costs, fleet) == pytest.approx(paper[part], rel=0.05)


def test_no_part_is_busier_than_its_work_makes_it() -> None:
    found = collect(COSTS, FLEET, 4000)
    screens = sum(COSTS.steps) / len(COSTS.steps) + 1
    work = found.pace * (screens * COSTS.screen_s + COSTS.rows_s)
    assert found.processors * FLEET.machines * FLEET.cores == pytest.approx(work, rel=0.05)
    assert found.asked == pytest.approx(found.pace * (screens - 1), rel=0.05)


def test_what_dies_is_begun_anew_and_all_is_committed_later() -> None:
    calm = collect(COSTS, FLEET, 2000)
    boxes = collect(replace(COSTS, failing=0.2), FLEET, 2000)
    machines = collect(COSTS, replace(FLEET, mtbf_s=60.0), 2000)
    assert calm.committed == boxes.committed == machines.committed == 2000
    assert calm.again == calm.deaths == boxes.deaths == 0
    assert boxes.again == pytest.approx(500, rel=0.2) and boxes.pace < calm.pace  # 0.2 of 2,500 begun
    assert machines.deaths > 0 and machines.again > 0 and machines.pace < calm.pace


def test_the_same_seed_is_the_same_collection() -> None:
    failing = replace(COSTS, failing=0.1)
    assert collect(failing, FLEET, 500, seed=3) == collect(failing, FLEET, 500, seed=3)
    assert collect(failing, FLEET, 500, seed=3) != collect(failing, FLEET, 500, seed=4)
