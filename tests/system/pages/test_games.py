"""The built-in games and a user's own, in a real headless Chromium."""

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from environments.games.environment import GameSandbox, GamesConfig, GameScore, GamesEnvironment, GameState
from environments.pool import SandboxPool
from schemas.action import Click, Hotkey, Wait
from schemas.failure import TrajectoryFailure
from tests.fixtures.players import Played, again, alike, at_random, play, scripted
from tests.tiers import NIGHTLY, lacks

T = TypeVar("T")
COUNTER = """<!DOCTYPE html>
<script src="rules.js"></script>
<button>More</button>
<script>
let points = 0, seconds = 0, began = [0, 0], drawn = Math.random();
document.querySelector("button").onclick = () => { points += STEP; localStorage.setItem("best", points); };
setInterval(() => { seconds += 1; }, 1000);
const begin = (seed, level) => { began = [seed, level, drawn, Math.random()]; };
</script>
"""
READS = {"start": "begin(seed, level)", "score": "points", "level": "seconds", "over": "points >= 6", "hint": "null"}


def games(**tasks: Any) -> GamesEnvironment:
    return GamesEnvironment("games", GamesConfig(browsers=1, pages=2, tasks=tasks))


def own(folder: Path, **changes: Any) -> GamesEnvironment:
    (folder / "rules.js").write_text("const STEP = 2;")
    (folder / "counter.html").write_text(COUNTER)
    about = {"page": str(folder / "counter.html"), "instruction": "Press.", "reference": 8, "source": "a guess"}
    return games(counter={**about, "threshold": 0.75, "reads": READS, **changes})


def in_sandbox(environment: GamesEnvironment, work: Callable[[GameSandbox], Awaitable[T]], seed: int = 1) -> T:
    async def run() -> T:
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("counter"), seed) as sandbox:
            assert isinstance(sandbox, GameSandbox)
            return await work(sandbox)

    return asyncio.run(run())


async def _played_twice(
    environment: GamesEnvironment, names: Sequence[str], player: Any, seed: int
) -> dict[str, tuple[Played, Played]]:
    async with SandboxPool([environment]) as pool:
        found = {}
        for name in names:
            first = await play(pool, environment.task(name), seed, player)
            found[name] = (first, await play(pool, environment.task(name), seed, again(first.actions)))
        return found


BUILT_IN = games()
EASY = [name for name in BUILT_IN.entries if name.endswith("-1")]


def test_there_are_games_of_many_kinds_at_several_levels() -> None:
    assert len(EASY) >= 12 and len(BUILT_IN.entries) == 3 * len(EASY)
    tags = {tag for entry in BUILT_IN.entries.values() for tag in entry.tags}
    assert tags >= {"clicks", "keys", "held-keys", "drags", "typing", "timing", "planning", "easy", "medium", "hard"}
    assert all(entry.source and entry.graded for entry in BUILT_IN.entries.values())


@pytest.mark.slow
def test_the_scripted_player_wins_every_game() -> None:
    async def run() -> dict[str, Played]:
        async with SandboxPool([BUILT_IN]) as pool:
            return {name: await play(pool, BUILT_IN.task(name), 11, scripted) for name in EASY}

    for name, played in asyncio.run(run()).items():
        assert played.reading.over and played.success, f"{name}: {played.reading}"
        assert len(set(played.pictures)) > 2, name


@pytest.mark.nightly
def test_the_same_actions_of_the_scripted_player_come_to_the_same() -> None:
    for name, (first, second) in asyncio.run(_played_twice(BUILT_IN, EASY, scripted, 11)).items():
        assert alike(first, second), name


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 5] if NIGHTLY else [3])
def test_at_random_the_same_seed_and_actions_come_to_the_same(seed: int) -> None:
    names = list(BUILT_IN.entries) if NIGHTLY else ["bricks-1", "four-1", "lights-1"]
    for name, (first, second) in asyncio.run(_played_twice(BUILT_IN, names, at_random, seed)).items():
        assert alike(first, second), name


@pytest.mark.nightly
def test_the_scripted_player_reaches_the_threshold_of_harder_levels_in_most_games() -> None:
    harder = [name for name in BUILT_IN.entries if name not in EASY]
    found = asyncio.run(_played_twice(BUILT_IN, harder, scripted, 2_000_000))
    assert all(alike(first, second) for first, second in found.values())
    assert sum(first.success for first, _ in found.values()) >= 0.9 * len(found)


@pytest.mark.slow
def test_another_seed_is_another_game() -> None:
    async def run() -> dict[str, set[bytes]]:
        shown: dict[str, set[bytes]] = {}
        async with SandboxPool([BUILT_IN]) as pool:
            for name in EASY:
                for seed in range(6):
                    async with pool.lease(BUILT_IN.task(name), seed) as sandbox:
                        for _ in range({"moles-1": 4, "simon-1": 0}.get(name, 1)):
                            await sandbox.perform(Wait())
                        shown.setdefault(name, set()).add((await sandbox.observe()).png)
        return shown

    hidden = {"pairs-1", "code-1"}
    for name, screens in asyncio.run(run()).items():
        assert len(screens) > 1 or name in hidden, name


@pytest.mark.nightly
def test_the_explorer_comes_to_something_in_games_of_clicks_and_of_keys() -> None:
    async def run() -> dict[str, float]:
        async with SandboxPool([BUILT_IN]) as pool:
            names = ("merge-1", "maze-1", "pairs-1")
            return {name: (await play(pool, BUILT_IN.task(name), 5, at_random)).reward for name in names}

    rewards = asyncio.run(run())
    assert all(reward > 0.0 for reward in rewards.values()), rewards


def test_a_game_of_one_s_own_is_read_by_expressions_over_its_top_level(tmp_path: Path) -> None:
    async def press(sandbox: GameSandbox) -> list[Any]:
        seen = await sandbox.observe(elements=True)
        x, y = seen.elements[0].centre
        found: list[Any] = [seen.instruction]
        for action in (Click(x=x, y=y), Wait(), Click(x=x, y=y), Click(x=x, y=y)):
            await sandbox.perform(action)
            found.append((sandbox.reading, await sandbox.verify(GameScore())))
        return found

    asked, once, waited, _, last = in_sandbox(own(tmp_path, wait_ms=3000), press)
    assert asked == "Press."
    assert (once[0], once[1].reward, once[1].done) == (GameState(False, 2, 0), 0.25, False)
    assert waited[0] == GameState(False, 2, 3)
    assert (last[0].over, last[1].reward, last[1].done) == (True, 0.75, True)
    assert last[1].reaches(0.75) and not once[1].reaches(0.75)


def test_a_score_beyond_the_reference_is_a_reward_of_one_and_below_zero_of_none(tmp_path: Path) -> None:
    async def reward(sandbox: GameSandbox) -> float:
        return (await sandbox.verify(GameScore())).reward

    for score, wanted in (("9", 1.0), ("-3", 0.0), ("6", 0.75)):
        assert in_sandbox(own(tmp_path, reads={**READS, "score": score}), reward) == wanted


def test_a_page_of_one_s_own_is_given_seed_and_level_and_its_chance_is_the_seeds(tmp_path: Path) -> None:
    reads = {**READS, "level": "began"}

    async def began(sandbox: GameSandbox) -> Any:
        return sandbox.reading.level

    first, same, other = (in_sandbox(own(tmp_path, reads=reads, level=2), began, seed) for seed in (5, 5, 6))
    assert first == same and first[:2] == [5, 2] and first[2] != first[3]
    assert other[:2] == [6, 2] and other[2:] != first[2:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reads", "answer"),
    [
        ({"score": "point"}, "counter.html: score, point, threw ReferenceError: point is not defined"),
        ({"score": "'many'"}, "counter.html: score, 'many', is 'many'"),
        ({"score": "0 / 0"}, "counter.html: score, 0 / 0, is NaN"),
        ({"score": "1 / 0"}, "counter.html: score, 1 / 0, is Infinity"),
        ({"start": "go()"}, "counter.html: start, go(), threw Error: start, go(), threw ReferenceError: go is not"),
        ({"over": "done +"}, "counter.html: over, done +, threw SyntaxError"),
    ],
)
def test_an_expression_that_says_nothing_is_the_verifier_s_failure_with_its_words(
    tmp_path: Path, reads: dict[str, str], answer: str
) -> None:
    async def nothing(sandbox: GameSandbox) -> None:
        return

    environment = own(tmp_path, reads={**READS, **reads})
    with pytest.raises(TrajectoryFailure) as failed:
        in_sandbox(environment, nothing)
    assert failed.value.boundary == "verifier" and failed.value.reason.startswith(answer), failed.value.reason
    check = environment.probes()[-1].check()
    assert not check.ok and answer.removeprefix("counter.html: ") in check.detail


def test_doctor_opens_the_games_that_the_config_brings_and_misses_a_page_before_a_browser_starts(
    tmp_path: Path,
) -> None:
    environment = own(tmp_path)
    assert all(probe.check().ok for probe in environment.probes())
    (tmp_path / "counter.html").unlink()
    found = environment.probes()[0].check()
    assert not found.ok and "environments.games.tasks.counter" in found.detail
    assert [probe.name for probe in BUILT_IN.probes()] == ["browser", "browser starts"]


PACKAGE = {
    "instruction": "Join the numbers and get to the 2048 tile. Keys: left, right, up, down.",
    "reference": 1024,
    "source": "an example: half of what a tile of 256 brings",
    "max_steps": 24,
    "width": 500,
    "height": 700,
    "reads": {
        "start": "new Promise((done) => setTimeout(done, 100))",
        "score": "game.gameManager.score",
        "level": "null",
        "over": "game.gameManager.over",
        "hint": "null",
    },
}


@pytest.mark.nightly
def test_a_game_of_a_package_is_brought_in_by_config_alone(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(lacks("no npm", "apt-get install npm"))
    fetched = [npm, "pack", "game-2048@0.0.7", "--ignore-scripts"]
    if subprocess.run(fetched, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode:
        pytest.skip(lacks("no npm registry", "run the tests with a network"))
    shutil.unpack_archive(next(tmp_path.glob("*.tgz")), tmp_path)
    page = str(tmp_path / "package" / "index.html")
    environment = games(package={**PACKAGE, "page": page})
    keys = [Hotkey(key=("left", "down", "right", "up")[at % 4]) for at in range(24)]

    async def run() -> list[Played]:
        async with SandboxPool([environment]) as pool:
            task = environment.task("package")
            return [await play(pool, task, seed, again(keys)) for seed in (1, 1, 2)]

    first, same, other = asyncio.run(run())
    assert first.reading.score > 0 and alike(first, same) and first.pictures != other.pictures
    assert first.reward == pytest.approx(first.reading.score / 1024)
