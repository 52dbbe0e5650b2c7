"""Tasks of which nothing works are named at the end, and an iteration in which nothing works ends with status 1."""

import json
from collections.abc import Callable

import pytest

from apps.commands.run import collect, require_collected, show_collected
from apps.commands.status import show_status, status_of
from environments.fake import FakeSandbox
from schemas.action import Action
from schemas.config import Config
from schemas.failure import EnvironmentDown, SandboxFailure
from storage.lake import Lake
from tasks.running.stage import result_of

pytestmark = pytest.mark.slow


Breaks = Callable[..., None]
LINE = "fake/two-steps: 30 of 30 failed in the sandbox: ValueError: bang"


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Breaks:
    """Lets every action in these tasks fail the box."""
    perform = FakeSandbox._perform  # pyright: ignore[reportPrivateUsage]

    def of(*templates: str) -> None:
        async def _perform(self: FakeSandbox, action: Action) -> None:
            if self._task.template in templates:  # pyright: ignore[reportPrivateUsage]
                raise SandboxFailure("ValueError: bang")
            await perform(self, action)

        monkeypatch.setattr(FakeSandbox, "_perform", _perform)

    return of


def test_a_task_that_always_fails_is_named_by_collect_and_by_status(
    small: Config, breaks: Breaks, capfd: pytest.CaptureFixture[str]
) -> None:
    breaks("two-steps")
    collected = collect(small)
    assert "fake/two-steps: 3 of 3 failed in the sandbox: ValueError: bang" in capfd.readouterr().err  # the explorer
    show_collected(collected, as_json=False)
    assert LINE in capfd.readouterr().out.splitlines()
    show_collected(collected, as_json=True)
    (listed,) = json.loads(capfd.readouterr().out)["collect"]["failing"]
    assert (listed["task"], listed["failed"], listed["trajectories"]) == ("fake/two-steps", 30, 30)
    lake = Lake.open(small.lake)
    assert status_of(lake)["failing"] == [listed]
    show_status(lake)
    assert LINE in " ".join(capfd.readouterr().out.split())
    require_collected(small)


def test_an_iteration_in_which_nothing_worked_ends_with_an_error_and_says_why_success_is_unknown(
    small: Config, breaks: Breaks
) -> None:
    breaks("click-target", "two-steps")
    collected = collect(small)
    assert "; 48 failed for reasons other than the policy" in str(collected.stages["collect"]["say"])
    with pytest.raises(
        EnvironmentDown,
        match=r"Nothing of iteration 0 worked: all 48 .* of \d+ failed in the sandbox: ValueError: bang\.",
    ):
        require_collected(small)
    prepared = result_of(Lake.open(small.lake), -1, "prepare")
    assert prepared and "explorer unknown (all failed: 6 in the sandbox)" in str(prepared["say"])
