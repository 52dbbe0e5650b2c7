"""Repairs in real sandboxes: a golden patch is rewarded, an untouched repository is not, and no cheat is."""

import ast
import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from environments.hybrid.repair.environment import (
    PACKAGES,
    RepairConfig,
    RepairEnvironment,
    RepairReward,
    RepairSandbox,
)
from environments.hybrid.repair.tasks import TEST, RepairInstance
from environments.hybrid.scripted import solve
from environments.pool import SandboxPool
from schemas.action import Action, Finished, ReadFile, Terminal, WriteFile
from schemas.failure import UsageError
from schemas.observation import Outcome
from schemas.tables.trajectory import SPLIT_STARTS
from tests.fixtures.cheats import cheats
from tests.fixtures.lamps import LAMPS, instance, issue, written
from tests.fixtures.sentences import Sentences
from tests.system.hybrid.isolation import NEEDS_A_JAIL

pytestmark = [NEEDS_A_JAIL, pytest.mark.slow, pytest.mark.usefixtures("real_browser")]
T = TypeVar("T")
REWARD = RepairReward()
PLAIN, TESTED, ISSUE = "repair-jsonpointer", "repair-lamps", "repair-example__lamps-1"
"""Tasks with recorded calls, with tests and calls, and with tests alone."""
TIMES = {"tests_s": 60.0, "command_s": 60.0, "step_timeout_s": 120.0}
"""Limits in seconds that a busy machine keeps."""
SHARED: list[tuple[asyncio.Runner, RepairEnvironment, SandboxPool]] = []
"""The pool of one browser that the tests lease from, one after the other."""


@pytest.fixture(scope="module", autouse=True)
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        folder = tmp_path_factory.mktemp("repair")
        patch.setenv("FLYWHEEL_HOME", str(folder / "home"))
        (folder / "issues.jsonl").write_text(json.dumps(issue(folder)) + "\n")
        config = RepairConfig(
            kind="repair", browsers=1, pages=1, packages=("jsonpointer", "cronsim"), faults=12,
            sources=(str(written(folder / "lamps", LAMPS)),), bundles=str(folder / "issues.jsonl"),
            repositories=str(folder), **TIMES,
        )  # fmt: skip
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
    if isinstance(moved, WriteFile):
        return moved.path
    named = re.search(r"Path\('(.+?)'\)", moved.command)
    assert named is not None, "the command for a large file names it"
    return named[1]


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


def test_a_source_s_own_tests_and_an_issue_s_tests_are_hidden_and_decide() -> None:
    async def work(sandbox: RepairSandbox) -> tuple[str, list[str], Outcome, Outcome]:
        found = (await sandbox.workspace.terminal.run("ls tests; grep -rho 'def test_[a-z]*' .")).output
        text, untouched = (await sandbox.observe()).instruction, await sandbox.verify(REWARD)
        return text, found.split(), untouched, await solve(sandbox, REWARD)

    text, found, untouched, outcome = leased(TESTED, work)
    assert "hidden tests fail, such as tests/test_" in text and not any("test_" in one for one in found)
    assert untouched.reward == 0.0 and "failing tests still fail" in untouched.reason
    assert outcome == Outcome(done=True, reward=1.0)
    text, found, untouched, outcome = leased(ISSUE, work)
    assert "`brightest([])` raises ValueError" in text and "test_power.py" in found and "test_watts" in found
    assert not any("test_brightest" in one for one in found), "the test patch is not there"
    assert untouched.reward == 0.0 and "test_brightest" in untouched.reason
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
        names = " -o ".join(f"-name {name}.py -o -type d -name {name}" for name in PACKAGES if name != "idna")
        find = rf"find / \( {names} -o -type d -name idna \) -not -path '/proc/*' 2>/dev/null; python3 -m pip --version"
        return (await sandbox.workspace.terminal.run(find)).output

    first, *rest = leased(PLAIN, work).splitlines()
    assert first == "/work/jsonpointer.py"
    assert [line for line in rest if not line.startswith("/work/")] == ["/usr/bin/python3: No module named pip"]


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


@pytest.mark.parametrize("template", [PLAIN, TESTED, ISSUE])
@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_is_rewarded(name: str, template: str) -> None:
    outcome = cheated(template, name, faulty(template))
    assert (outcome.done, outcome.reward) == (True, 0.0) and outcome.reason


def test_results_that_the_code_under_test_changes_are_noticed() -> None:
    """These cheats would pass all hidden tests of the issue, if no test had to fail."""
    for name in ("patches pytest and unittest in the module", "returns objects that equal everything"):
        reason = cheated(ISSUE, name, faulty(ISSUE)).reason
        assert reason == "tests that must fail pass: the code under test changes the results", name


def test_hidden_tests_that_are_rewritten_and_restored_are_noticed() -> None:
    path = faulty(ISSUE)
    code = """
import atexit, glob
def _swap(test):
    was = open(test).read()
    open(test, "w").write(was.replace("assert", "assert True or"))
    atexit.register(lambda: open(test, "w").write(was))
for _test in glob.glob("/work/tests/*.py"):
    _swap(_test)
"""

    async def work(sandbox: RepairSandbox) -> Outcome:
        await sandbox.perform(repaired(instance_of(sandbox)))
        await sandbox.perform(Terminal(command=f"cat >> {path} <<'END'\n{code}\nEND"))
        return await sandbox.verify(REWARD)

    outcome = leased(ISSUE, work)
    assert outcome.reward == 0.0 and "a test file was changed while the tests ran" in outcome.reason


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


def refused(**keys: object) -> RepairEnvironment:
    """An environment whose only repository is refused."""
    return RepairEnvironment("repair", RepairConfig.model_validate({"kind": "repair", "packages": (), **TIMES, **keys}))


def examined(environment: RepairEnvironment) -> str:
    """What `flywheel doctor` finds about the hidden tests."""
    (probe,) = [one for one in environment.probes() if one.name == "hidden tests"]
    return probe.examine()


def test_doctor_checks_the_tests_of_all_repositories() -> None:
    ((_, environment, _),) = SHARED
    assert "4 repositories" in examined(environment)


def test_a_lease_of_a_repository_that_is_refused_stops_with_its_message(tmp_path: Path) -> None:
    source = written(tmp_path / "lamps", {**LAMPS, "tests/test_more.py": "def test_wrong():\n    assert False\n"})
    environment = refused(sources=(str(source),), browsers=1, pages=1)

    async def inside() -> None:
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("repair-lamps"), 1):
            raise AssertionError

    with pytest.raises(UsageError, match=r"tests of .*lamps fail before any change: tests/test_more.py::test_wrong"):
        asyncio.run(inside())


def test_a_source_whose_tests_fail_before_a_change_is_refused(tmp_path: Path, sentence: Sentences) -> None:
    wrong = LAMPS["tests/test_power.py"].replace("== 65", "== 66")
    source = written(tmp_path / "lamps", {**LAMPS, "tests/test_power.py": wrong})
    with sentence.raises(UsageError, "environments.repair.sources", "tests/test_power.py::test_watts"):
        examined(refused(sources=(str(source),)))


def test_a_package_without_a_function_to_change_is_refused(tmp_path: Path, sentence: Sentences) -> None:
    source = written(tmp_path / "empty", {"empty.py": "import time\n\n\ndef clock():\n    return time.time()\n"})
    with sentence.raises(UsageError, "environments.repair.sources", "empty"):
        examined(refused(sources=(str(source),)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"PASS_TO_PASS": ["tests/test_power.py::test_brightest"]}, "PASS_TO_PASS"),
        ({"FAIL_TO_PASS": ["tests/test_power.py::test_watts"]}, "FAIL_TO_PASS"),
        ({"FAIL_TO_PASS": ["tests/test_none.py::test_a"]}, "tests/test_none.py"),
        ({"patch": ""}, ""),
        ({"patch": "WRONG"}, "with its patch"),
    ],
)
def test_a_bundle_whose_tests_are_not_as_it_says_is_refused(
    tmp_path: Path, sentence: Sentences, change: dict[str, Any], named: str
) -> None:
    given = issue(tmp_path)
    if change.get("patch"):
        change = {"patch": given["patch"].replace("default=0", "default=1")}
    (tmp_path / "issues.jsonl").write_text(json.dumps(given | change))
    environment = refused(bundles=str(tmp_path / "issues.jsonl"), repositories=str(tmp_path))
    if named:
        with sentence.raises(UsageError, "environments.repair.bundles", "line 1", named):
            examined(environment)
    else:
        assert examined(environment), "the right patch may be unknown"


TEST_AREA = "from lib.core import area\n\n\ndef test_area():\n    assert area(3, 4) == 12\n"
CORE = "def area(w, h):\n    return w + h\n"
AREA = {"lib/__init__.py": "", "lib/core.py": CORE, "tests/test_core.py": ""}
"""A repository whose area is wrong."""
FLAT = "def area(w, h):\n    return w * h\n"
READS = 'import json\nfrom pathlib import Path\nOP = json.loads((Path(__file__).parent / "op.json").read_text())\n'
REPAIRS: dict[str, dict[str, str | bytes | None]] = {
    "subpackage": {
        "lib/core.py": "from lib.geo.flat import area\n", "lib/geo/__init__.py": "", "lib/geo/flat.py": FLAT,
    },
    "module": {"lib/core.py": "from geo import area\n", "geo.py": FLAT},
    "data": {"lib/core.py": f"{READS}def area(w, h):\n    return w * h if OP else 0\n", "lib/op.json": "[1]"},
    "binary": {"lib/core.py": FLAT, "lib/logo.png": b"\x89PNG\x00\xff"},
    "renamed": {"lib/core.py": None, "lib/flat.py": FLAT},
}  # fmt: skip


def played(folder: Path, given: dict[str, Any], *actions: Action) -> Outcome:
    """Plays actions, or the script if there are none, in the task of a bundle."""
    ((runner, _, _),) = SHARED
    (folder / "one.jsonl").write_text(json.dumps(given))
    environment = refused(bundles=str(folder / "one.jsonl"), repositories=str(folder), browsers=1, pages=1)

    async def inside() -> Outcome:
        task = environment.task(f"repair-{given['instance_id']}")
        async with SandboxPool([environment]) as pool, pool.lease(task, 1) as sandbox:
            assert isinstance(sandbox, RepairSandbox)
            if not actions:
                assert (await sandbox.verify(REWARD)).reward == 0.0
                return await solve(sandbox, REWARD)
            for action in actions:
                assert await sandbox.perform(action) is None
            return await sandbox.verify(REWARD)

    return runner.run(inside())


@pytest.mark.parametrize("name", REPAIRS)
def test_the_right_patch_scores_1_with_new_files(tmp_path: Path, name: str) -> None:
    tests = {"tests/test_core.py": TEST_AREA.replace("lib.core", "lib.flat") if name == "renamed" else TEST_AREA}
    given = instance(tmp_path, name, AREA, REPAIRS[name], tests, ["tests/test_core.py::test_area"], [])
    assert played(tmp_path, given) == Outcome(done=True, reward=1.0)


def test_a_patch_that_changes_a_protected_file_is_refused_with_the_file(tmp_path: Path, sentence: Sentences) -> None:
    right = {"lib/core.py": "from lib.testing.flat import area\n", "lib/testing/flat.py": FLAT}
    given = instance(
        tmp_path, "testing", AREA, right, {"tests/test_core.py": TEST_AREA}, ["tests/test_core.py::test_area"], []
    )
    (tmp_path / "one.jsonl").write_text(json.dumps(given))
    with sentence.raises(UsageError, "environments.repair.bundles", "with its patch", "lib/testing/flat.py"):
        examined(refused(bundles=str(tmp_path / "one.jsonl"), repositories=str(tmp_path)))


XFAIL = "\n\n@pytest.mark.xfail\ndef test_known():\n    assert area(1, 1) == 7\n"


def test_an_expected_failure_counts_as_passed_only_where_a_test_marks_it(tmp_path: Path) -> None:
    names = ["tests/test_core.py::test_known", "tests/test_core.py::test_area"]
    marked = instance(
        tmp_path, "marked", AREA, {"lib/core.py": FLAT}, {"tests/test_core.py": f"import pytest\n{TEST_AREA}{XFAIL}"},
        names[1:], names[:1],
    )  # fmt: skip
    assert played(tmp_path, marked) == Outcome(done=True, reward=1.0)
    plain = instance(tmp_path, "calls", AREA, {"lib/core.py": FLAT}, {"tests/test_core.py": TEST_AREA}, names[1:], [])
    cheat = "import pytest\n\n\ndef area(w, h):\n    pytest.xfail()\n"
    assert played(tmp_path, plain, WriteFile(path="lib/core.py", content=cheat)).reward == 0.0


def test_test_files_under_other_names_are_protected(tmp_path: Path) -> None:
    spec = "from lib.core import twice\n\n\ndef test_twice():\n    assert twice(3) == 6\n"
    base = {
        **AREA, "lib/core.py": f"{CORE}\n\ndef twice(x):\n    return 2 * x\n", "spec/twice_spec.py": spec,
        "pytest.ini": "[pytest]\npython_files = *_spec.py test_*.py\n",
    }  # fmt: skip
    right = base["lib/core.py"].replace("w + h", "w * h")
    given = instance(
        tmp_path, "spec", base, {"lib/core.py": right}, {"tests/test_core.py": TEST_AREA},
        ["tests/test_core.py::test_area"], ["spec/twice_spec.py::test_twice"],
    )  # fmt: skip
    broken = WriteFile(path="lib/core.py", content=right.replace("2 * x", "5"))
    edited = WriteFile(path="spec/twice_spec.py", content="def test_twice():\n    pass\n")
    assert played(tmp_path, given) == Outcome(done=True, reward=1.0)
    outcome = played(tmp_path, given, broken, edited)
    assert outcome.reward == 0.0 and "1 of 1 other tests fail" in outcome.reason


ANY_INT = "class _Any(int):\n    def __eq__(self, other):\n        return isinstance(other, int)\n"
FORGERIES = {
    "equals every number": f"{ANY_INT}\n\ndef area(w, h):\n    return _Any(0)\n",
    "equals everything": ANY_INT.replace("isinstance(other, int)", "True")
    + "\n\ndef area(w, h):\n    return _Any(0)\n",
    "reads the source of its caller": (
        "import linecache, re, sys\n\n\ndef area(w, h):\n    frame = sys._getframe(1)\n"
        "    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)\n"
        "    return int(re.search(r'== (\\d+)', line)[1])\n"
    ),
    "reads the constants of its caller": (
        "import sys\n\n\ndef area(w, h):\n"
        "    return next(one for one in sys._getframe(1).f_code.co_consts[::-1] if type(one) is int and one > 6)\n"
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_an_answer_from_the_caller_is_noticed_with_and_without_the_right_patch(tmp_path: Path, name: str) -> None:
    tests = TEST_AREA.replace("    assert", "    assert str(5) == '5'\n    assert")
    given = instance(
        tmp_path, "area", AREA, {"lib/core.py": FLAT}, {"tests/test_core.py": tests},
        ["tests/test_core.py::test_area"], [],
    )  # fmt: skip
    for one in (given, given | {"patch": ""}):
        outcome = played(tmp_path, one, WriteFile(path="lib/core.py", content=FORGERIES[name]))
        assert outcome.reason == "tests that must fail pass: the code under test changes the results"
        assert outcome.reward == 0.0
        assert played(tmp_path, one, WriteFile(path="lib/core.py", content=FLAT)) == Outcome(done=True, reward=1.0)


def test_tests_that_read_their_own_file_and_name_keep_both(tmp_path: Path) -> None:
    tests = f"""from pathlib import Path

{TEST_AREA}

def test_name():
    assert __name__.split(".")[-1] == "test_core"


def test_data():
    assert Path(__file__).with_suffix(".txt").read_text() == "ok"
"""
    names = [f"tests/test_core.py::test_{one}" for one in ("area", "name", "data")]
    given = instance(
        tmp_path, "names", AREA, {"lib/core.py": FLAT}, {"tests/test_core.py": tests, "tests/test_core.txt": "ok"},
        names[:1], names[1:],
    )  # fmt: skip
    assert played(tmp_path, given) == Outcome(done=True, reward=1.0)
