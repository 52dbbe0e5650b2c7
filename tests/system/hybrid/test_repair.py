"""Repairs in real sandboxes: a golden patch is rewarded, an untouched repository is not, and no cheat is."""

import ast
import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from environments.hybrid.repair.environment import RepairConfig, RepairEnvironment, RepairReward, RepairSandbox
from environments.hybrid.repair.tasks import TEST, RepairInstance
from environments.hybrid.scripted import solve
from environments.pool import SandboxPool
from schemas.action import Action, Finished, ReadFile, Terminal, WriteFile
from schemas.observation import Outcome
from schemas.tables.trajectory import SPLIT_STARTS
from tests.fixtures.cheats import cheats
from tests.system.hybrid.isolation import NEEDS_A_JAIL

pytestmark = [NEEDS_A_JAIL, pytest.mark.slow, pytest.mark.usefixtures("real_browser")]
T = TypeVar("T")
REWARD = RepairReward()
PLAIN = "repair-jsonpointer"
SHARED: list[tuple[asyncio.Runner, RepairEnvironment, SandboxPool]] = []
"""The pool of one browser that the tests lease from, one after the other."""


@pytest.fixture(scope="module", autouse=True)
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv("FLYWHEEL_HOME", str(tmp_path_factory.mktemp("home")))
        config = RepairConfig(kind="repair", browsers=1, pages=1, packages=("jsonpointer", "cronsim"), faults=12)
        environment = RepairEnvironment("repair", config)
        pool = runner.run(SandboxPool([environment]).__aenter__())
        SHARED.append((runner, environment, pool))
        yield
        runner.run(pool.close())
        SHARED.clear()


def leased(template: str, work: Callable[[RepairSandbox], Awaitable[T]], seed: int = 1) -> T:
    ((runner, environment, pool),) = SHARED

    async def inside() -> T:
        async with pool.lease(environment.task(template), seed) as sandbox:
            assert isinstance(sandbox, RepairSandbox)
            return await work(sandbox)

    return runner.run(inside())


def instance_of(sandbox: RepairSandbox) -> RepairInstance:
    assert isinstance(sandbox.instance, RepairInstance)
    return sandbox.instance


def repaired(instance: RepairInstance) -> WriteFile | Terminal:
    """The move of the script that repairs the fault."""
    return next(one for one in instance.script if isinstance(one, WriteFile | Terminal))


def faulty(template: str) -> str:
    """The path of the file with the fault."""
    ((runner, environment, _),) = SHARED
    instance = runner.run(environment.instance(template, 1))
    moved = repaired(instance)
    assert isinstance(moved, WriteFile), "the tests' packages are small"
    return moved.path


def test_the_script_repairs_the_fault_and_the_visible_test_shows_it() -> None:
    async def work(sandbox: RepairSandbox) -> tuple[int | None, Outcome, Outcome, int | None]:
        before = await sandbox.workspace.terminal.run(f"python3 {TEST}")
        untouched = await sandbox.verify(REWARD)
        outcome = await solve(sandbox, REWARD)
        after = await sandbox.workspace.terminal.run(f"true; python3 {TEST}")
        after = await sandbox.workspace.terminal.run(f"python3 {TEST}") if after.status is None else after
        return before.status, untouched, outcome, after.status

    for template in (PLAIN, "repair-cronsim"):
        before, untouched, outcome, after = leased(template, work)
        assert (before, after) == (1, 0)
        assert untouched.reward == 0.0 and "failing calls still fail" in untouched.reason
        assert outcome == Outcome(done=True, reward=1.0)


def test_a_seed_gives_the_same_task_again_and_splits_have_other_functions() -> None:
    ((runner, environment, _),) = SHARED
    functions = dict[str, set[str]]()
    for split, begin in SPLIT_STARTS.items():
        made = [runner.run(environment.instance(PLAIN, begin + at)) for at in range(12)]
        again = runner.run(environment.instance(PLAIN, begin))
        assert (made[0].files, made[0].words) == (again.files, again.words)
        assert split != "train" or len({str(one.words[0]) for one in made}) > 3
        functions[split] = {fault.mutation.function for fault in runner.run(environment.faults(PLAIN)).of_split(split)}
    assert all(functions.values())
    assert not functions["train"] & functions["test"] and not functions["train"] & functions["validation"]


def test_a_repair_in_another_way_is_rewarded_and_one_that_breaks_another_call_is_not() -> None:
    path = faulty(PLAIN)

    async def other(sandbox: RepairSandbox) -> Outcome:
        await sandbox.perform(repaired(instance_of(sandbox)))
        await sandbox.perform(Terminal(command=f"echo '# a comment' >> {path}; rm {TEST}; mkdir notes; echo > notes/a"))
        await sandbox.conclude(Finished(content=""))
        return await sandbox.verify(REWARD)

    async def breaks(sandbox: RepairSandbox) -> Outcome:
        await sandbox.perform(repaired(instance_of(sandbox)))
        await sandbox.perform(Terminal(command=f"echo 'JsonPointer.get_parts = None' >> {path}"))
        await sandbox.conclude(Finished(content=""))
        return await sandbox.verify(REWARD)

    assert leased(PLAIN, other) == Outcome(done=True, reward=1.0)
    broken = leased(PLAIN, breaks)
    assert broken.reward == 0.0 and "other calls have another answer" in broken.reason


def remembered(instance: RepairInstance, path: str) -> str | None:
    """Code that answers the calls of the visible test from a table; None if one of them is a method's."""
    table = defaultdict[str, dict[str, str]](dict)
    for node in ast.walk(ast.parse(instance.contents[TEST])):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.assertEqual":
            asked, answer = node.args
            assert isinstance(asked, ast.Call)
            name = ast.unparse(asked.func).removeprefix(f"{path.removesuffix('.py')}.")
            if not name.isidentifier():
                return None
            table[name][repr(tuple(ast.literal_eval(one) for one in asked.args))] = ast.unparse(answer)
    known = {name: {call: ast.literal_eval(answer) for call, answer in of.items()} for name, of in table.items()}
    return (
        f"_known = {known!r}\n"
        "def _wrapped(name, real):\n"
        "    return lambda *given: _known[name][repr(given)] if repr(given) in _known[name] else real(*given)\n"
        "globals().update({name: _wrapped(name, globals()[name]) for name in _known})\n"
    )


def test_a_table_of_the_shown_calls_is_no_repair() -> None:
    ((runner, environment, _),) = SHARED
    path = faulty(PLAIN)
    made = ((seed, runner.run(environment.instance(PLAIN, seed))) for seed in range(20))
    seed, code = next((seed, code) for seed, one in made if (code := remembered(one, path)))

    async def work(sandbox: RepairSandbox) -> tuple[int | None, Outcome]:
        await sandbox.perform(Terminal(command=f"cat >> {path} <<'END'\n{code}\nEND"))
        ran = await sandbox.workspace.terminal.run(f"python3 {TEST}")
        return ran.status, await sandbox.verify(REWARD)

    status, outcome = leased(PLAIN, work, seed)
    assert status == 0 and outcome.reward == 0.0, "the visible test passes, and hidden calls fail"


def test_no_answer_and_no_other_copy_of_the_package_is_in_the_sandbox() -> None:
    async def work(sandbox: RepairSandbox) -> str:
        find = "find / -name 'jsonpointer*' -not -path '/proc/*' 2>/dev/null; ls /usr/lib/python3/dist-packages; id -u"
        return (await sandbox.workspace.terminal.run(find)).output

    *found, user = leased(PLAIN, work).split()
    assert "/work/jsonpointer.py" in found and user == "1000"
    assert all(place.startswith("/work/") for place in found), "no installed package is visible"


CHEATS = list(cheats(RepairInstance((), None, ()), "lamp/bulb.py"))  # type: ignore[arg-type]


def cheated(template: str, name: str, path: str) -> Outcome:
    async def work(sandbox: RepairSandbox) -> Outcome:
        actions: tuple[Action, ...] = cheats(instance_of(sandbox), path)[name]
        for action in actions:
            await sandbox.perform(action)
        await sandbox.conclude(Finished(content=""))
        return await sandbox.verify(REWARD)

    return leased(template, work)


def test_there_are_at_least_ten_cheats() -> None:
    assert len(CHEATS) >= 10


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_is_rewarded(name: str) -> None:
    outcome = cheated(PLAIN, name, faulty(PLAIN))
    assert (outcome.done, outcome.reward) == (True, 0.0) and outcome.reason


def test_a_reset_takes_less_than_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(sandbox: RepairSandbox) -> None:
        assert (await sandbox.observe()).instruction

    leased(PLAIN, work)
    begun = time.perf_counter()
    for seed in range(10):
        leased(PLAIN if seed % 2 else "repair-cronsim", work, seed)
    rate = 10 / (time.perf_counter() - begun)
    with capsys.disabled():
        print(f"\n{rate:.1f} resets a second")
    assert rate >= 1.0


def test_the_editor_shows_the_repository() -> None:
    path = faulty(PLAIN)

    async def work(sandbox: RepairSandbox) -> None:
        assert await sandbox.perform(ReadFile(path=path)) is None
        assert sandbox.workspace.opened == path

    leased(PLAIN, work)
