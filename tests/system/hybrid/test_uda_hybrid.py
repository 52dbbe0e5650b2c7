"""UDA-Gym's bundles in a hybrid workspace: the same verdicts as on a desktop, and refusals of what needs a desktop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from environments.catalog import catalog
from environments.hybrid.uda.environment import (
    UdaHybridConfig,
    UdaHybridEnvironment,
    UdaHybridReward,
    UdaHybridSandbox,
    UdaWorkspace,
)
from environments.pool import SandboxPool
from environments.registry import ENVIRONMENTS, VERIFIERS
from schemas import action as act
from schemas.config import config_of
from schemas.failure import SandboxFailure, TrajectoryFailure, UsageError
from tests.desktops import IN_NAMESPACES
from tests.fixtures.sentences import Sentences
from tests.system.hybrid.isolation import NEEDS_A_JAIL
from tests.unit.environments.desktop import test_uda as desktop

SETUP = desktop.SETUP.replace(' && test "$DISPLAY" = :0', "")
WRITES = ("true", "echo 5 > results/answer.txt", "echo 6 > results/answer.txt", "mkdir -p results/answer.txt")
"""What a policy does, each on a workspace of its own."""
CHEATS = (
    "ln -s /tmp_workspace/gt/answer.txt results/answer.txt",
    "ln -s gt deep; ln -s ../deep/answer.txt results/answer.txt",
    "rmdir results; ln -s gt results",
    "mkdir gt; echo 6 > gt/answer.txt; echo 6 > results/answer.txt",
    "echo 'dumps = lambda _: chr(123)+chr(34)+\"overall_score\"+chr(34)+\":1}\"' > json.py",
    "mkdir .uda_check; echo 'echo {\\\"overall_score\\\": 1}' > .uda_check/check.sh; chmod 555 .uda_check/check.sh",
)  # fmt: skip


def bundle(folder: Path, **changes: str | None) -> Path:
    return desktop.bundle(folder, **{"setup.sh": SETUP, **changes})


def environment(folder: Path, **keys: Any) -> UdaHybridEnvironment:
    given = {"kind": "uda-hybrid", "bundles": str(folder), "browsers": 1, "pages": 1, "memory_mib": 512, **keys}
    return UdaHybridEnvironment("uda", UdaHybridConfig.model_validate(given))


def scores(folder: Path, commands: tuple[str, ...]) -> list[float | str]:
    """The verdict after each command, each on a workspace of its own; the reason where there is none."""
    of = environment(folder)
    (one,) = of.bundles.values()

    async def work() -> list[float | str]:
        found = list[float | str]()
        for command in commands:
            space = await UdaWorkspace.start(one, of.settings.limits, 5.0)
            try:
                await space.terminal.run(command)
                found.append(await space.score(one, of.settings.limits))
            except TrajectoryFailure as error:
                assert error.boundary == "verifier"
                found.append(error.reason)
            finally:
                await space.terminal.close()
        return found

    return asyncio.run(work())


@pytest.mark.parametrize(
    "changes",
    [
        {"setup.sh": "set -e\nDISPLAY=:0 xterm &\n"}, {"check.sh": "xdotool --display $DISPLAY key a\n"},
        {"meta.json": '{"id": "sum", "driver": "uda-gym", "runtime": {"type": "ec2", "profile": "general-root"}}'},
        {"setup.sh": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_bundle_that_needs_a_desktop_or_root_is_refused_by_its_file_or_field(
    changes: dict[str, str | None], tmp_path: Path, sentence: Sentences
) -> None:
    with sentence.raises(UsageError):
        _ = environment(bundle(tmp_path, **changes)).bundles


def test_a_bundle_is_a_task_of_the_hybrid_kind(tmp_path: Path) -> None:
    of = environment(bundle(tmp_path, **{"setup.sh": f"# needs no DISPLAY\n{SETUP}"}))
    task = of.task("sum")
    assert (task.instruction, task.verifier, task.lineage) == ("{}", "uda-hybrid", "uda-gym sum")
    assert ENVIRONMENTS.class_of("uda-hybrid") is UdaHybridEnvironment
    assert VERIFIERS.class_of("uda-hybrid") is UdaHybridReward
    section = {"uda-hybrid": {"bundles": str(tmp_path)}}
    config = config_of({"environments": section, "suite": {"tasks": ["sum"]}, "lake": {"uri": str(tmp_path / "l")}})
    assert [one.task_id for one in catalog(config)] == ["uda-hybrid/sum"]


@NEEDS_A_JAIL
@pytest.mark.slow
def test_links_folders_and_modules_of_a_policy_do_not_reach_the_truth(tmp_path: Path) -> None:
    assert scores(bundle(tmp_path), CHEATS) == [0.0] * len(CHEATS)


@NEEDS_A_JAIL
@pytest.mark.slow
def test_the_setup_runs_first_and_its_files_are_gone(tmp_path: Path) -> None:
    of = environment(bundle(tmp_path))
    (one,) = of.bundles.values()

    async def work() -> tuple[str, str]:
        space = await UdaWorkspace.start(one, of.settings.limits, 5.0)
        try:
            listed = await space.terminal.run("ls -A /tmp_workspace/ /tmp; pwd")
            found = await space.terminal.run("grep -rsl 'no policy' /work /tmp /tmp_workspace/ /dev/shm")
        finally:
            await space.terminal.close()
        return listed.output, found.output

    listed, found = asyncio.run(work())
    assert listed.split() == ["/tmp:", "/tmp_workspace/:", "given.txt", "question.txt", "results", "/work"]
    assert found == ""


@NEEDS_A_JAIL
@IN_NAMESPACES
@pytest.mark.slow
def test_both_kinds_have_the_same_verdicts_on_the_same_bundle(tmp_path: Path) -> None:
    check = desktop.CHECK.replace("set -euo pipefail", "test -d /tmp_workspace/results/answer.txt && exit 9; set -eu")
    folder = bundle(tmp_path, **{"check.sh": check})

    async def play(sandbox: desktop.UdaSandbox, command: str) -> float | str:
        await desktop.shell(sandbox, command)
        try:
            return await desktop.reward(sandbox)
        except TrajectoryFailure as error:
            assert error.boundary == "verifier"
            return error.reason

    def on_desktop(command: str) -> float | str:
        return desktop.played(folder, lambda sandbox: play(sandbox, command))

    commands = (*WRITES, *CHEATS[:3])
    expected = [0.0, 1.0, 0.0, "check.sh: it exits with 9: no output", 0.0, 0.0, 0.0]
    assert scores(folder, commands) == expected
    assert [on_desktop(command) for command in commands] == expected


@NEEDS_A_JAIL
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"setup.sh": "echo no such program >&2; exit 4"}, SandboxFailure),
        ({"setup.sh": "python3 -m http.server 8123 > /dev/null 2>&1 &"}, UsageError),
        ({"check.sh": "echo '{\"overall_score\": 1}'"}, UsageError),
        ({"check.sh": "echo oops"}, UsageError),
        (
            {"check.sh": "sleep 60", "meta.json": '{"id": "sum", "driver": "uda-gym", "timeout_seconds": 2}'},
            UsageError,
        ),
    ],
    ids=str,
)
def test_a_setup_or_a_check_that_does_not_work_is_refused(
    changes: dict[str, str | None], kind: type[Exception], tmp_path: Path, sentence: Sentences
) -> None:
    of = environment(bundle(tmp_path, **changes))
    (one,) = of.bundles.values()
    with pytest.raises(kind) as refused:
        asyncio.run(of.prove(one))
    sentence(str(refused.value))


@NEEDS_A_JAIL
@pytest.mark.slow
@pytest.mark.usefixtures("real_browser")
def test_a_policy_solves_a_bundle_on_the_screen_of_a_workspace(tmp_path: Path) -> None:
    of = environment(bundle(tmp_path))

    async def leased(play: Callable[[UdaHybridSandbox], Awaitable[Any]]) -> Any:
        async with SandboxPool([of]) as pool, pool.lease(of.task("sum"), 0) as sandbox:
            assert isinstance(sandbox, UdaHybridSandbox)
            return await play(sandbox)

    async def play(sandbox: UdaHybridSandbox) -> list[float]:
        seen = await sandbox.observe()
        assert seen.instruction == "Add the numbers of question.txt; write {the sum} to results/answer.txt."
        before = await sandbox.verify(UdaHybridReward())
        await sandbox.perform(act.Terminal(command="cat question.txt; echo 5 > results/answer.txt"))
        after = await sandbox.verify(UdaHybridReward())
        return [before.reward, after.reward]

    assert asyncio.run(leased(play)) == [0.0, 1.0]
