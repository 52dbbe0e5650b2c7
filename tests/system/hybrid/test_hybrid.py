"""The hybrid sandbox in a real Chromium and a real jail: one file system under a page and a shell."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from PIL import Image

from environments.hybrid.environment import FAMILIES, TEMPLATES, HybridEnvironment
from environments.hybrid.sandbox import HybridSandbox
from environments.hybrid.scripted import REWARD, solve
from environments.pool import SandboxPool
from environments.sandbox import Sandbox
from schemas import action as act
from schemas.failure import ActionFailure
from schemas.observation import Outcome
from tests.guides import told
from tests.parts import miniwob
from tests.system.hybrid.isolation import NEEDS_A_JAIL, hybrid, run
from tests.tiers import NIGHTLY

pytestmark = [NEEDS_A_JAIL, pytest.mark.usefixtures("real_browser")]
T = TypeVar("T")


ENVIRONMENT = hybrid(1, 1, command_s=1.0)
SHARED: list[tuple[asyncio.Runner, SandboxPool]] = []
"""The pool of one browser that the tests lease from, one after the other."""


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    with asyncio.Runner() as runner:
        pool = runner.run(SandboxPool([ENVIRONMENT]).__aenter__())
        SHARED.append((runner, pool))
        yield
        runner.run(pool.close())
        SHARED.clear()


def leased(template: str, work: Callable[[HybridSandbox], Awaitable[T]], seed: int = 1) -> T:
    ((runner, pool),) = SHARED

    async def inside() -> T:
        async with pool.lease(ENVIRONMENT.task(template), seed) as sandbox:
            assert isinstance(sandbox, HybridSandbox)
            return await work(sandbox)

    return runner.run(inside())


async def click(sandbox: Sandbox, name: str) -> None:
    elements = (await sandbox.observe(elements=True)).elements
    x, y = next(one for one in elements if one.interactive and one.name == name).centre
    await sandbox.perform(act.Click(x=x, y=y))


async def names(sandbox: Sandbox) -> list[str]:
    return [one.name for one in (await sandbox.observe(elements=True)).elements]


async def pixels(sandbox: Sandbox) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO((await sandbox.observe()).png)).convert("RGB")).astype(int)


def test_what_is_downloaded_in_the_browser_is_worked_on_in_the_shell_and_uploaded_again() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        await click(sandbox, "Download names.txt")
        assert await sandbox.perform(act.Terminal(command="sort downloads/names.txt > downloads/sorted.txt")) is None
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0)
        await click(sandbox, "names.txt")
        await click(sandbox, "browser")
        (form,) = sandbox.instance.goal.uploads
        await click(sandbox, f"Upload downloads/names.txt to {form}")
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0), "the file as it was is not the sorted one"
        await click(sandbox, "sorted.txt")
        await click(sandbox, "browser")
        await click(sandbox, f"Upload downloads/sorted.txt to {form}")
        assert await sandbox.verify(REWARD) == Outcome(True, 1.0)

    leased("web-sort-upload", work)


def test_the_guides_task_of_ones_own_is_played_in_a_subclass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def inside() -> list[tuple[str, Outcome, Outcome]]:
        environment, task = told("hybrid-tasks.md", "papers", tmp_path, monkeypatch)
        assert (task.task_id, task.lineage, list(environment.entries)) == (
            "papers/papers-shout",
            "papers 1",
            ["papers-shout"],
        )
        played = list[tuple[str, Outcome, Outcome]]()
        async with SandboxPool([environment]) as pool:
            for seed in (1, 2):
                async with pool.lease(task, seed) as sandbox:
                    assert isinstance(sandbox, HybridSandbox)
                    instruction = (await sandbox.observe()).instruction
                    played.append((instruction, await sandbox.verify(REWARD), await solve(sandbox)))
        return played

    (first, *came), (second, *_) = run(inside())
    assert first != second and first.startswith('Write the text of "note-')
    assert came == [Outcome(False, 0.0), Outcome(True, 1.0)]


def test_the_terminal_is_in_the_picture_and_can_be_typed_into() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        assert 0 < (sandbox.memory_mb or 0) < 200, "the shell and what keeps it apart"
        before = await pixels(sandbox)
        await sandbox.perform(act.Terminal(command="echo hello > greeting.txt; cat greeting.txt"))
        after = await pixels(sandbox)
        changed = (before != after).any(axis=2)
        assert changed[264:460, 190:].any(), "the terminal shows the command and what it printed"
        assert changed[:264, :190].any(), "the list of files shows the new one"
        assert "greeting.txt" in await names(sandbox)
        await sandbox.perform(act.Type(content="rm greeting.txt\n"))
        assert "greeting.txt" not in await names(sandbox), "the command line has the focus at first"

    leased("files-open", work)


def test_a_file_is_edited_on_the_page_and_by_tools() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        assert await sandbox.perform(act.WriteFile(path="a/b.txt", content="one\n")) is None
        await click(sandbox, "Text")
        await sandbox.perform(act.Hotkey(key="ctrl end"))
        await sandbox.perform(act.Type(content="two"))
        await click(sandbox, "Save")
        assert sandbox.workspace.files.read("a/b.txt") == b"one\ntwo"
        assert await sandbox.perform(act.ReadFile(path="a/b.txt")) is None
        assert sandbox.workspace.opened == "a/b.txt"

    leased("files-open", work)


def test_an_action_that_comes_to_nothing_says_why_and_the_trajectory_goes_on() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        assert "no such file" in (await sandbox.perform(act.ReadFile(path="none.txt")) or "")
        assert "not below /work" in (await sandbox.perform(act.ReadFile(path="/etc/passwd")) or "")
        assert "not below /work" in (await sandbox.perform(act.WriteFile(path="../x", content="")) or "")
        assert "no page" in (await sandbox.perform(act.Navigate(content="https://example.org")) or "")
        assert "no page before" in (await sandbox.perform(act.NavigateBack()) or "")
        await sandbox.perform(act.Terminal(command="ln -s /etc/passwd link.txt; head -c 100 /dev/urandom > noise"))
        assert await sandbox.perform(act.ReadFile(path="link.txt"))
        assert "no text" in (await sandbox.perform(act.ReadFile(path="noise")) or "")

    leased("files-open", work)


def test_output_without_end_and_a_command_that_never_ends_leave_the_sandbox_working() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        for command in ("yes", "sleep 60", "trap '' INT; sleep 60"):
            assert await sandbox.perform(act.Terminal(command=command)) is None
        assert "stopped after 1 s" in sandbox.workspace.view()["terminal"]
        assert len(sandbox.workspace.view()["terminal"]) < 100_000
        assert (await solve(sandbox)).reaches(1)

    leased("files-open", work)


def test_a_command_that_ends_the_shell_is_the_policy_s_failure_and_the_next_lease_works() -> None:
    async def work() -> Outcome:
        environment = hybrid(1, 1)
        task = environment.task("files-open")
        async with SandboxPool([environment]) as pool:
            with pytest.raises(ActionFailure, match="the shell was ended"):
                async with pool.lease(task, 1) as sandbox:
                    await sandbox.perform(act.Terminal(command="kill -9 -1; sleep 5"))
            assert pool.metrics.deaths == 0
            async with pool.lease(task, 1) as sandbox:
                assert isinstance(sandbox, HybridSandbox)
                return await solve(sandbox)

    assert run(work()).reaches(1)


@pytest.mark.parametrize(
    "action", [act.Terminal(command="ls"), act.ReadFile(path="a"), act.WriteFile(path="a", content="")]
)
def test_an_action_of_another_kind_of_sandbox_is_the_policy_s_failure(action: act.Action) -> None:
    async def work() -> None:
        environment = miniwob(1, 1)
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("click-test"), 1) as sandbox:
            with pytest.raises(ActionFailure, match=f"a browser cannot perform {action.type}"):
                await sandbox.perform(action)

    run(work())


def test_what_files_and_commands_hold_is_shown_as_text_and_never_as_markup() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        markup = "<img src=x onerror=document.body.remove()>"
        await sandbox.perform(act.WriteFile(path=markup, content=markup))
        await sandbox.perform(act.Terminal(command=f"echo '{markup}'"))
        assert markup in await names(sandbox)
        found = await sandbox._page.evaluate("world.document.querySelectorAll('img').length")
        assert found == 0

    leased("files-open", work)


def test_a_seed_looks_the_same_again_and_so_do_its_steps() -> None:
    async def work() -> list[bytes]:
        environment = hybrid(1, 1)
        seen = []
        async with SandboxPool([environment]) as pool:
            for _ in range(2):
                async with pool.lease(environment.task("tables-sum"), 3) as sandbox:
                    seen.append((await sandbox.observe()).png)
                    await sandbox.perform(act.Terminal(command="head -n 3 sales.csv; cd /tmp"))
                    seen.append((await sandbox.observe()).png)
        return seen

    first, second, again, after = run(work())
    assert (first, second) == (again, after) and first != second


@pytest.mark.parametrize("size", [(320, 240), (900, 300)])
def test_a_workspace_of_another_size_shows_all_of_its_parts_and_is_worked_in(size: tuple[int, int]) -> None:
    async def work() -> tuple[tuple[int, int], list[tuple[str, float]], Outcome]:
        environment = hybrid(1, 1, width=size[0], height=size[1])
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("files-open"), 1) as sandbox:
            assert isinstance(sandbox, HybridSandbox)
            seen = await sandbox.observe(elements=True)
            edges = [(one.name, max(one.box[2], one.box[3])) for one in seen.elements]
            return Image.open(io.BytesIO(seen.png)).size, edges, await solve(sandbox)

    drawn, edges, outcome = run(work())
    assert drawn == size and outcome.reaches(1)
    assert {"Address", "Command", "Back"} <= {name for name, _ in edges}
    right = {name: edge for name, edge in edges if name in ("Address", "Command")}
    assert all(edge < 1 for edge in right.values()), right  # no field reaches beyond the screen


def test_a_wrong_answer_ends_the_task_without_a_reward() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        await sandbox.conclude(act.Finished(content="nowhere"))
        assert await sandbox.verify(REWARD) == Outcome(True, 0.0)

    leased("web-maker-city", work)


def absent(sandbox: HybridSandbox) -> list[str]:
    """Files that are to be gone, once what is to be elsewhere has been copied there."""
    return [path for path, wanted in sandbox.instance.goal.files.items() if wanted is None]


HIDES = {
    "cannot be read": "chmod 000 {0}",
    "is a link": "mv {0} /tmp/{0}; ln -s /tmp/{0} {0}",
    "is a link to nothing": "mv {0} /tmp/{0}; ln -s nowhere {0}",
    "is a folder": "mv {0} /tmp/{0}; mkdir {0}; mv /tmp/{0} {0}/",
    "is too large": "head -c 2000000 /dev/zero >> {0}",
}


DELETING = [
    "files-delete", "files-delete-two", "files-rename", "files-move-kind", "files-delete-largest",
    "files-delete-copies",
]  # fmt: skip


@pytest.mark.parametrize("template", DELETING)
def test_what_is_only_hidden_is_not_gone(template: str) -> None:
    async def work(sandbox: HybridSandbox) -> None:
        goal, contents = sandbox.instance.goal, sandbox.instance.contents
        for path, wanted in goal.files.items():
            if isinstance(wanted, bytes):
                source = next(name for name, content in contents.items() if content == wanted)
                await sandbox.perform(act.Terminal(command=f"mkdir -p $(dirname {path}); cp {source} {path}"))
        for how, command in HIDES.items():
            await sandbox.perform(act.Terminal(command="; ".join(command.format(path) for path in absent(sandbox))))
            assert await sandbox.verify(REWARD) == Outcome(False, 0.0), how
            for path in absent(sandbox):
                await sandbox.workspace.terminal.run(f"rm -rf {path}; echo again > {path}")
        await sandbox.perform(act.Terminal(command="chmod 000 /work"))
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0), "the folder cannot be read"
        await sandbox.perform(act.Terminal(command=f"chmod 755 /work; rm {' '.join(absent(sandbox))}"))
        assert await sandbox.verify(REWARD) == Outcome(True, 1.0), "they are gone"

    leased(template, work)


KEEPS = {
    "under another name": "mv {0} kept-{0}",
    "hidden": "mv {0} .kept-{0}",
    "in a folder that cannot be read": "mkdir -p kept/in; mv {0} kept/in/; chmod 000 kept",
    "behind a link": "mv {0} /tmp/{0}; ln -s /tmp/{0} kept-{0}",
    "by another of its names": "ln {0} kept-{0}; rm {0}",
    "below more folders than are looked through": "cd /work; d=$(printf 'kept/%.0s' {{1..40}}); mkdir -p $d; mv {0} $d",
}


@pytest.mark.parametrize("template", DELETING)
def test_what_is_kept_elsewhere_is_not_gone(template: str) -> None:
    async def work(sandbox: HybridSandbox) -> None:
        goal, contents, (path, *rest) = sandbox.instance.goal, sandbox.instance.contents, absent(sandbox)
        for made, wanted in goal.files.items():
            if isinstance(wanted, bytes):
                sandbox.workspace.files.write(made, wanted)
        await sandbox.perform(act.Terminal(command=f"md5sum * > sums; rm -f {' '.join(rest)}"))
        for how, command in KEEPS.items():
            await sandbox.perform(act.Terminal(command=command.format(path)))
            assert await sandbox.verify(REWARD) == Outcome(False, 0.0), how
            await sandbox.perform(act.Terminal(command="cd /work; chmod -R u+rwX .; rm -rf kept* .kept*"))
            sandbox.workspace.files.write(path, contents[path])
        await sandbox.perform(act.Terminal(command=f"rm {path}"))
        assert await sandbox.verify(REWARD) == Outcome(True, 1.0), "it is gone, and what was noted on the way is not it"

    leased(template, work)


def test_these_are_all_tasks_in_which_a_file_is_to_be_gone() -> None:
    goals = {name: one.instance(name, 1)[1].goal for name, one in TEMPLATES.items()}
    assert {name for name, goal in goals.items() if None in goal.files.values()} == set(DELETING)


def test_a_result_may_be_a_link_to_a_file_of_the_jail_and_what_is_to_be_copied_or_kept_may_not() -> None:
    async def result(sandbox: HybridSandbox) -> None:
        for link in ("/etc/passwd", "result.txt", "../usr/bin/env", "x" * 300, "$(printf 'd/%.0s' {1..60})x"):
            await sandbox.perform(act.Terminal(command=f"ln -sfn {link} result.txt"))
            assert await sandbox.verify(REWARD) == Outcome(False, 0.0)
        command = "sort names.txt > /tmp/r; ln -s r /tmp/l; ln -sf ../tmp/l result.txt"
        await sandbox.perform(act.Terminal(command=command))
        assert await sandbox.verify(REWARD) == Outcome(True, 1.0)

    async def kept(sandbox: HybridSandbox) -> None:
        await sandbox.perform(act.Terminal(command="mv names.txt n; ln -s n names.txt; sort n > result.txt"))
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0)

    async def copied(sandbox: HybridSandbox) -> None:
        name, folder = sandbox.instance.words
        await sandbox.perform(act.Terminal(command=f"mkdir {folder}; ln -s ../{name} {folder}/{name}"))
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0)

    leased("text-sort", result)
    leased("text-sort", kept)
    leased("files-copy", copied)


def test_an_archive_may_be_unpacked_in_two_steps_and_a_name_found_be_absolute() -> None:
    async def unpacked(sandbox: HybridSandbox) -> None:
        name, folder = map(str, sandbox.instance.words)
        await sandbox.perform(act.Terminal(command=f"gunzip {name}; mkdir {folder}"))
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0)
        await sandbox.perform(act.Terminal(command=f"tar xf {name.removesuffix('.gz')} -C {folder}"))
        assert await sandbox.verify(REWARD) == Outcome(True, 1.0)

    async def found(sandbox: HybridSandbox) -> None:
        (word,) = sandbox.instance.words
        await sandbox.perform(act.Terminal(command=f"grep {word} $PWD/*.txt > found.txt"))
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0), "the line is no name"
        await sandbox.perform(act.Terminal(command=f"rm found.txt; grep -l {word} $PWD/*.txt > found.txt"))
        assert await sandbox.verify(REWARD) == Outcome(True, 1.0)

    leased("files-unpack", unpacked)
    leased("files-find-word", found)


def test_one_script_may_be_run_and_not_all_of_them() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        (name,) = sandbox.instance.words
        await sandbox.perform(act.Terminal(command="chmod 777 *"))
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0)
        await sandbox.perform(act.Terminal(command=f"chmod 644 *; chmod +x {name}"))
        assert await sandbox.verify(REWARD) == Outcome(True, 1.0)

    leased("files-allow-run", work)


def test_a_program_whose_named_test_fails_is_not_mended_and_one_with_a_helper_beside_it_is() -> None:
    grouped = "from itertools import groupby\n\ndef runs(text):\n    return [{} for k, g in groupby(text)]\n"

    async def work(sandbox: HybridSandbox) -> None:
        (trial,) = sandbox.instance.goal.trials
        await sandbox.perform(act.WriteFile(path=trial.path, content=grouped.format("(k, len(list(g)))")))
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0), "tuples are no lists"
        await sandbox.perform(act.WriteFile(path=trial.path, content="from helper import runs\n"))
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0), "there is no helper"
        await sandbox.perform(act.WriteFile(path="helper.py", content=grouped.format("[k, len(list(g))]")))
        assert await sandbox.verify(REWARD) == Outcome(True, 1.0)

    leased("programs-runs", work)


def test_a_program_whose_shown_tests_alone_pass_is_not_mended() -> None:
    async def work(sandbox: HybridSandbox) -> None:
        (trial,) = sandbox.instance.goal.trials
        shown = {repr(list(case)): answer for case, answer in trial.cases[:3]}
        cheat = f"SHOWN = {shown!r}\n\ndef {trial.function}(*values):\n    return SHOWN.get(repr(list(values)))\n"
        await sandbox.perform(act.WriteFile(path=trial.path, content=cheat))
        await sandbox.perform(act.Terminal(command=f"python3 test_{trial.function}.py"))
        assert "passed" in sandbox.workspace.view()["terminal"]
        assert await sandbox.verify(REWARD) == Outcome(False, 0.0)

    leased("programs-runs", work)


def _solved(environment: HybridEnvironment, names_: list[str], seeds: range) -> list[str]:
    """Which tasks their way does not solve."""

    async def one(pool: SandboxPool, name: str, seed: int) -> str:
        async with pool.lease(environment.task(name), seed) as sandbox:
            assert isinstance(sandbox, HybridSandbox)
            first = await sandbox.verify(REWARD)
            return "" if not first.done and (await solve(sandbox)).reaches(1) else f"{name}, seed {seed}"

    async def all_of_them() -> list[str]:
        async with SandboxPool([environment]) as pool:
            found = await asyncio.gather(*(one(pool, name, seed) for name in names_ for seed in seeds))
        return [one for one in found if one]

    return run(all_of_them())


def test_a_task_of_every_family_and_level_is_solved_by_its_way() -> None:
    chosen = [name for family in FAMILIES for name in list(family.templates)[-2:]]
    assert _solved(hybrid(1, 2), list(TEMPLATES) if NIGHTLY else chosen, range(11, 12)) == []


@pytest.mark.nightly
def test_the_whole_catalog_is_solved_by_its_ways_for_five_seeds() -> None:
    assert _solved(hybrid(1, 2), list(TEMPLATES), range(5)) == []
