"""Task bundles in the form of UDA-Gym: what is refused, what the policy never sees, and when there is a verdict."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from environments.catalog import catalog
from environments.desktop.uda.bundles import read_uda_bundles
from environments.desktop.uda.environment import UdaConfig, UdaEnvironment, UdaReward, UdaSandbox
from environments.desktop.uda.verdict import WORKSPACE, score_of
from environments.registry import ENVIRONMENTS, VERIFIERS
from schemas import action as act
from schemas.config import config_of
from schemas.failure import SandboxFailure, TrajectoryFailure, UsageError
from tests.desktops import IN_NAMESPACES
from tests.fixtures.sentences import Sentences

SETUP = """\
set -euo pipefail
cp /tmp_workspace/.uda_hidden/question.txt /tmp_workspace/question.txt
echo "session 7" > "$UDA_GYM_HARNESS_STATE_DIR/session"
test -f /tmp_workspace/given.txt && test "$DISPLAY" = :0
"""
CHECK = """\
set -euo pipefail
grep -q "session 7" "$UDA_GYM_HARNESS_STATE_DIR/session"
echo "grading"
python3 - <<'END'
import json, pathlib
found = pathlib.Path("/tmp_workspace/results/answer.txt")
right = pathlib.Path("/tmp_workspace/gt/answer.txt").read_text()
print(json.dumps({"overall_score": float(found.is_file() and found.read_text() == right), "errors": []}))
END
"""


def bundle(folder: Path, name: str = "sum", **changes: str | None) -> Path:
    """A bundle whose answer is in `gt/`; changes are files by name, or None for one that is missing."""
    files: dict[str, str | None] = {
        "meta.json": json.dumps({"id": name, "driver": "uda-gym", "timeout_seconds": 20}),
        "instruction.md": "Add the numbers of question.txt; write {the sum} to results/answer.txt.\n",
        "setup.sh": SETUP,
        "check.sh": CHECK,
        "exec/given.txt": "given",
        "hidden/question.txt": "2 and 3",
        "hidden/secret.txt": "no policy sees this",
        "gt/answer.txt": "5\n",
    }
    for path, text in (files | changes).items():
        if text is not None:
            (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / path).write_text(text)
    return folder


def environment(folder: Path, **keys: Any) -> UdaEnvironment:
    config = UdaConfig.model_validate({"kind": "uda", "bundles": str(folder), "terminal": False, **keys})
    return UdaEnvironment("uda", config)


def played(folder: Path, play: Callable[[UdaSandbox], Awaitable[Any]], **keys: Any) -> Any:
    """What a trajectory of the bundle `sum` returns."""

    async def work() -> Any:
        of = environment(folder, **keys)
        sandbox = of.host().sandbox()
        assert isinstance(sandbox, UdaSandbox)
        try:
            await sandbox.start(of.task("sum"), 0)
            return await play(sandbox)
        finally:
            await sandbox.stop()

    return asyncio.run(work())


async def shell(sandbox: UdaSandbox, command: str) -> str:
    """A command that the policy runs in a terminal, and its output."""
    done = await sandbox.box.ask("execute", command=command, timeout_s=20, cwd=WORKSPACE)
    return done["stdout"]


async def reward(sandbox: UdaSandbox) -> float:
    return (await sandbox.verify(UdaReward())).reward


@pytest.mark.parametrize(
    "output", ["", "done", "[1]", "{}", '{"overall_score": "1"}', '{"overall_score": true}', '{"overall_score": NaN}',
               '{"overall_score": 1.5}', '{"overall_score": 1}\nbye'],
)  # fmt: skip
def test_a_check_without_a_finite_score_in_its_last_line_is_no_verdict(output: str, sentence: Sentences) -> None:
    with pytest.raises(TrajectoryFailure) as failure:
        score_of(output)
    assert failure.value.boundary == "verifier"
    sentence(failure.value.reason)


def test_the_last_line_has_the_score() -> None:
    assert score_of('{"overall_score": 0}\nlog\n{"overall_score": 0.25, "subscores": {}, "errors": []}\n') == 0.25


@pytest.mark.parametrize(
    "changes",
    [
        {"meta.json": "{"}, {"meta.json": '{"id": "a"}'}, {"meta.json": '{"id": "a", "driver": "osworld_v1"}'},
        {"meta.json": '{"id": "a/b", "driver": "uda-gym"}'}, {"setup.sh": None}, {"check.sh": None},
        {"instruction.md": " \n"}, {"harness_env.tsv": "API_KEY\n"},
    ],
    ids=str,
)  # fmt: skip
def test_an_incomplete_bundle_is_refused_by_its_file(
    changes: dict[str, str | None], tmp_path: Path, sentence: Sentences
) -> None:
    with sentence.raises(UsageError):
        read_uda_bundles(bundle(tmp_path, **changes), "environments.uda.bundles")


def test_folders_without_bundles_links_and_doubled_ids_are_refused(tmp_path: Path, sentence: Sentences) -> None:
    key = "environments.uda.bundles"
    for name in ("none", "empty"):
        if name == "empty":
            (tmp_path / name).mkdir()
        with sentence.raises(UsageError):
            read_uda_bundles(tmp_path / name, key)
    bundle(tmp_path / "twice", "a")
    bundle(tmp_path / "twice", "b", **{"meta.json": '{"id": "a", "driver": "uda-gym"}'})
    with sentence.raises(UsageError):
        read_uda_bundles(tmp_path / "twice", key)
    (bundle(tmp_path / "links") / "sum" / "exec" / "passwd").symlink_to("/etc/passwd")
    with sentence.raises(UsageError):
        read_uda_bundles(tmp_path / "links", key)
    with sentence.raises(UsageError):
        _ = UdaEnvironment("uda", UdaConfig()).bundles


def test_a_bundle_is_a_task_with_its_instruction_as_it_is(tmp_path: Path) -> None:
    of = environment(bundle(tmp_path))
    task = of.task("sum")
    assert (task.instruction, task.verifier, task.lineage, task.deterministic) == ("{}", "uda", "uda-gym sum", False)
    assert ENVIRONMENTS.class_of("uda") is UdaEnvironment and VERIFIERS.class_of("uda") is UdaReward


def test_bundles_need_namespaces(tmp_path: Path, sentence: Sentences, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("environments.desktop.uda.environment.require_programs", lambda: "")
    with sentence.raises(UsageError):
        environment(bundle(tmp_path), isolation="none").host()


@pytest.mark.slow
@IN_NAMESPACES
def test_a_solved_bundle_has_its_score_and_hidden_files_are_gone_before_the_first_screen(tmp_path: Path) -> None:
    async def play(sandbox: UdaSandbox) -> None:
        seen = await sandbox.observe()
        assert seen.instruction == "Add the numbers of question.txt; write {the sum} to results/answer.txt."
        assert (await shell(sandbox, "ls -A")).split() == ["given.txt", "question.txt", "results"]
        assert "no policy" not in await shell(sandbox, "grep -rs 'no policy' / --include=*.txt -l --exclude-dir=proc")
        assert await reward(sandbox) == 0.0
        await shell(sandbox, "echo 5 > results/answer.txt")
        assert await reward(sandbox) == 1.0

    played(bundle(tmp_path), play)


@pytest.mark.slow
@IN_NAMESPACES
def test_a_policy_that_cheats_scores_0(tmp_path: Path) -> None:
    cheats = (
        "setsid sh -c 'while true; do cp gt/answer.txt results/ 2>/dev/null; done' &",
        "mkdir gt; echo 6 > gt/answer.txt; echo 6 > results/answer.txt",
        "echo 'dumps = lambda _: chr(123)+chr(34)+\"overall_score\"+chr(34)+\":1}\"' > json.py",
        'd=$(python3 -m site --user-site); mkdir -p "$d"; echo "print(1)" > "$d/usercustomize.py"',
        "rm -rf gt; mkdir -p gt/deep; chmod 000 gt; echo 6 > results/answer.txt",
        "mkdir .uda_check; echo 'echo {\\\"overall_score\\\": 1}' > .uda_check/check.sh; chmod 555 .uda_check/check.sh",
    )  # fmt: skip

    async def play(sandbox: UdaSandbox) -> list[float]:
        scores = list[float]()
        for cheat in cheats:
            await shell(sandbox, cheat)
            await asyncio.sleep(0.3)
            scores.append(await reward(sandbox))
        return scores

    assert played(bundle(tmp_path), play) == [0.0] * len(cheats)


@pytest.mark.slow
@IN_NAMESPACES
@pytest.mark.parametrize("check", ["exit 3", "echo oops", "echo '{\"overall_score\": NaN}'", "sleep 60"])
def test_a_check_that_fails_on_the_untouched_start_is_refused(check: str, tmp_path: Path, sentence: Sentences) -> None:
    meta = json.dumps({"id": "sum", "driver": "uda-gym", "timeout_seconds": 2})
    with sentence.raises(UsageError):
        played(bundle(tmp_path, **{"check.sh": check, "meta.json": meta}), reward)


@pytest.mark.slow
@IN_NAMESPACES
def test_a_check_that_rewards_the_untouched_start_is_refused(tmp_path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError):
        played(bundle(tmp_path, **{"check.sh": "echo '{\"overall_score\": 1}'"}), reward)


@pytest.mark.slow
@IN_NAMESPACES
def test_a_check_that_breaks_later_is_no_verdict_and_never_0(tmp_path: Path) -> None:
    async def play(sandbox: UdaSandbox) -> None:
        await shell(sandbox, "mkdir -p results/answer.txt")
        with pytest.raises(TrajectoryFailure) as failure:
            await reward(sandbox)
        assert failure.value.boundary == "verifier" and "exits with 9" in failure.value.reason

    check = CHECK.replace("set -euo pipefail", "test -d /tmp_workspace/results/answer.txt && exit 9; set -eu")
    played(bundle(tmp_path, **{"check.sh": check}), play)


@pytest.mark.slow
@IN_NAMESPACES
@pytest.mark.parametrize(
    "setup", ["echo no such program >&2; exit 4", "tail -f /tmp_workspace/.uda_hidden/secret.txt > /dev/null &"]
)
def test_a_setup_that_fails_or_keeps_hidden_files_open_ends_the_trajectory(
    setup: str, tmp_path: Path, sentence: Sentences
) -> None:
    with pytest.raises(SandboxFailure) as failure:
        played(bundle(tmp_path, **{"setup.sh": setup}), reward)
    sentence(failure.value.reason)


def test_a_suite_of_bundles_is_one_of_its_own_sandboxes(tmp_path: Path) -> None:
    environments = {"uda": {"bundles": str(bundle(tmp_path))}}
    config = config_of({"environments": environments, "suite": {"tasks": ["sum"]}, "lake": {"uri": str(tmp_path)}})
    assert [one.task_id for one in catalog(config)] == ["uda/sum"]


@pytest.mark.slow
@IN_NAMESPACES
def test_a_terminal_is_open_in_the_workspace(tmp_path: Path) -> None:
    async def play(sandbox: UdaSandbox) -> float:
        await sandbox.perform(act.Type(content="echo 5 > results/answer.txt\n"))
        await asyncio.sleep(0.5)
        return await reward(sandbox)

    assert played(bundle(tmp_path), play, terminal=True) == 1.0
