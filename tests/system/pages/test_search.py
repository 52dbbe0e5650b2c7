"""The encyclopedia in a real browser: what can be opened, what an answer is worth, and readers of three kinds."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from benchmarks.search import bars, measured
from environments.pool import SandboxPool
from environments.registry import require
from environments.search.environment import SearchConfig, SearchEnvironment, SearchReward, SearchSandbox
from environments.search.served import ORIGIN, SITE, VISIT
from models.completion import Completion
from models.explorer import PageExplorer
from models.families.dialects import parse_reply
from models.judges.judge import Judge, JudgeCase, Judgement
from models.policy import Context, Policy
from rollout.actor import Actor
from rollout.runner import with_judgement
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas import action as act
from schemas.config import load_config
from schemas.config.section import Section
from schemas.context import ContextRule
from schemas.observation import Outcome

T = TypeVar("T")
OUTSIDE = "http://127.0.0.1:{port}"
PAGES = {
    "index.html": """<!DOCTYPE html><title>Lamps</title><meta http-equiv="refresh" content="0;url={outside}/refresh">
<base href="{outside}/base/"><script>document.title = "run"; fetch("{outside}/fetch", {{mode: "no-cors"}})</script>
<style>p {{ display: none }}</style><h1>Lamps</h1><p>Every lamp is listed: <a href="brass.html">brass</a>,
<a href="hidden.html">hidden</a>, <a href="{outside}/link">outside</a>, <a href="file:///etc/passwd">file</a>,
<a href="javascript:location='{outside}/js'">code</a>.</p><img src="own.png" alt="own">
<img src="{outside}/img" alt="theirs">
<iframe src="{outside}/frame"></iframe><form action="{outside}/form"><button>Send</button></form>
<svg><a href="{outside}/svg"><text>drawn</text></a></svg><p onclick="location='{outside}/handler'">Click me</p>""",
    "brass.html": "<title>Brass lamp</title><p>It weighs 4 kg. Back to <a href='index.html#top'>all lamps</a>.</p>",
    "hidden.html": "<title>Hidden lamp</title><p>This lamp gives the answer away: 4 kg.</p>",
}
ELSEWHERE = (
    "http://example.com/", "https://search.localhost/", "file:///etc/passwd", "about:blank", "http://[",
    "data:text/html,a",
    "javascript:alert(1)", f"http://{SITE}:99/", f"http://{SITE}@127.0.0.1/", "chrome://version", "127.0.0.1", "",
    f"http://{SITE}.example.com/",
)  # fmt: skip
NO_PAGES = (
    "/page/hidden.html", "/page/./hidden.html", "/page/hidden%2Ehtml", "/page/../../etc/passwd", "/picture/hidden.html",
    "/page/a\nb", "//example.com", "/page/own.png", "/page/%00",
)  # fmt: skip
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fccf50"
    "0f0003860180c4a1d5b50000000049454e44ae426082"
)


def leased(environment: SearchEnvironment, *works: Callable[[SearchSandbox], Awaitable[T]]) -> list[T]:
    """Results of works, each in a sandbox of its own that asks the same question."""

    async def run() -> list[T]:
        template, found = next(iter(environment.entries)), list[T]()
        async with SandboxPool([environment]) as pool:
            for work in works:
                async with pool.lease(environment.task(template), 0) as sandbox:
                    assert isinstance(sandbox, SearchSandbox)
                    found.append(await work(sandbox))
        return found

    require([environment])
    return asyncio.run(run())


async def click(sandbox: SearchSandbox, name: str) -> None:
    found = (await sandbox.observe(elements=True)).elements
    x, y = next(one for one in found if one.name == name).centre
    await sandbox.perform(act.Click(x=x, y=y))


async def answered(sandbox: SearchSandbox, text: str) -> Outcome:
    await sandbox.conclude(act.Finished(content=text))
    return await sandbox.verify(SearchReward())


@pytest.fixture
def lamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SearchEnvironment, list[str]]:
    """A corpus of the user's, whose first page tries to reach a server, and what this server was asked for."""
    asked = list[str]()

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    server = HTTPServer(("127.0.0.1", 0), Listening)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pages = tmp_path / "pages"
    pages.mkdir()
    for name, text in PAGES.items():
        (pages / name).write_text(text.format(outside=OUTSIDE.format(port=server.server_port)))
    (pages / "own.png").write_bytes(PIXEL)
    line = {
        "question": "How heavy is the brass lamp, in kg?", "answer": 4, "kind": "number", "unit": "kg",
        "evidence": ["brass.html"], "excludes": ["hidden.html"],
    }  # fmt: skip
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(json.dumps({**line, "split": split}) for split in ("train", "validation", "test")))
    section = SearchConfig(
        kind="search", corpus=str(pages), questions=str(file), browsers=1, pages=1, width=640, height=480
    )
    return SearchEnvironment("search", section), asked


def test_a_brought_page_keeps_its_text_and_pictures_and_reaches_nobody(
    lamps: tuple[SearchEnvironment, list[str]],
) -> None:
    environment, asked = lamps

    async def look(sandbox: SearchSandbox) -> tuple[str, list[str]]:
        await sandbox.perform(act.Navigate(content="/page/index.html"))
        for name in ("hidden", "outside", "file", "code", "Click me", "drawn", "theirs"):
            found = (await sandbox.observe(elements=True)).elements
            place = next((one.centre for one in found if name in one.name), (0.5, 0.9))
            await sandbox.perform(act.Click(x=place[0], y=place[1]))
            await sandbox.perform(act.MiddleSingle(x=place[0], y=place[1]))
        await sandbox.perform(act.Wait())
        found = await sandbox.web.evaluate("[...document.images].map((one) => `${one.alt} ${one.naturalWidth}`)")
        links = await sandbox.web.evaluate("[...document.links].map((one) => one.href)")
        return await sandbox.text(), [await sandbox.web.evaluate("location.href"), *links, *found]

    ((text, (address, *others)),) = leased(environment, look)
    assert "Every lamp is listed: brass, hidden, outside, file, code." in text
    assert address == f"{ORIGIN}/page/index.html"
    assert others == [f"{ORIGIN}/", f"{ORIGIN}/page/brass.html", "own 1", "theirs 0"]
    assert asked == []


def test_no_address_leads_out_of_the_corpus_or_to_an_excluded_page(lamps: tuple[SearchEnvironment, list[str]]) -> None:
    environment, asked = lamps

    async def go(sandbox: SearchSandbox) -> None:
        for address in ELSEWHERE:
            refused = await sandbox.perform(act.Navigate(content=address))
            assert refused is not None and "outside the encyclopedia" in refused, address
            assert (await sandbox.text()).startswith("Encyclopedia"), address
        for address in NO_PAGES:
            assert await sandbox.perform(act.Navigate(content=address)) is None
            text = await sandbox.text()
            assert "gives the answer away" not in text and "root:" not in text, address
        assert "at most 2000 are allowed" in (await sandbox.perform(act.Navigate(content=f"/{'é' * 5000}")) or "")
        await sandbox.perform(act.Navigate(content="/"))
        await sandbox.perform(act.Type(content=f"{'é' * 5000}\n"))
        assert "No page has these words." in await sandbox.text()
        await sandbox.perform(act.Navigate(content=f"{SITE}/search?q=lamp"))
        assert "Hidden lamp" not in await sandbox.text() and "Brass lamp" in await sandbox.text()
        assert sandbox.opened == ()

    leased(environment, go)
    assert asked == []


def test_pages_are_served_to_the_lease_s_browser_alone(lamps: tuple[SearchEnvironment, list[str]]) -> None:
    async def ask(sandbox: SearchSandbox) -> list[int]:
        address = sandbox._server.address
        async with httpx.AsyncClient(trust_env=False) as client:
            paths = ("/", "/search?q=lamp", "/page/index.html", "/picture/own.png", "/none")
            return [(await client.get(f"http://{address}{path}", headers={"host": SITE})).status_code for path in paths]

    assert leased(lamps[0], ask) == [[403] * 5]


def test_an_answer_is_worth_what_it_says_and_what_was_read(lamps: tuple[SearchEnvironment, list[str]]) -> None:
    environment = lamps[0]

    async def unread(sandbox: SearchSandbox) -> Outcome:
        before = await sandbox.verify(SearchReward())
        assert before == Outcome(False, 0.0, reason="no answer")
        return await answered(sandbox, "4 kg")

    async def read(sandbox: SearchSandbox) -> Outcome:
        await sandbox.perform(act.Type(content="lamp weighs\n"))
        await click(sandbox, "Brass lamp")
        await click(sandbox, "all lamps")
        assert sandbox.opened == ("brass.html", "index.html") and sandbox.searches == ("lamp weighs",)
        assert await sandbox.perform(act.NavigateBack()) is None and "4 kg" in await sandbox.text()
        return await answered(sandbox, "4,000 g")

    async def wrong(sandbox: SearchSandbox) -> Outcome:
        return await answered(sandbox, "5 kg")

    async def asks(sandbox: SearchSandbox) -> Outcome:
        await sandbox.conclude(act.CallUser())
        return await sandbox.verify(SearchReward())

    missing = "right answer, not supported: these pages were not opened: brass.html"
    assert leased(environment, unread, read, wrong, asks) == [
        Outcome(True, 0.2, reason=missing),
        Outcome(True, 1.0, reason="right answer, supported by the opened pages"),
        Outcome(True, 0.0, reason="wrong answer"),
        Outcome(True, 0.0, reason="wrong answer"),
    ]
    section = environment.config.model_copy(update={"unsupported": 1.0})
    assert leased(SearchEnvironment("search", section), unread)[0].reward == 1.0


class Saying(Policy):
    version, dialect = "s", "box_v1"

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        return [parse_reply(self.replies.pop(0))]


@pytest.mark.parametrize(
    ("replies", "reward", "success", "end"),
    [
        (["navigate(content='/page/brass.html')", "finished(content='4 kg')"], 1.0, True, "finished"),
        (["navigate(content='http://example.com/')", "finished(content='4 kg')"], 0.2, False, "finished"),
        (["navigate(content='/page/brass.html')", "finished()"], 0.0, False, "finished"),
        (["navigate(content='/page/brass.html')", "navigate_back()"], 0.0, False, "max_steps"),
    ],
)
def test_a_trajectory_ends_with_its_answer_and_keeps_its_reward(
    lamps: tuple[SearchEnvironment, list[str]], replies: list[str], reward: float, success: bool, end: str
) -> None:
    environment, _ = lamps
    task = environment.task("search-questions", max_steps=len(replies))
    planned = PlannedTrajectory("lake", "run", 0, task, 1, "policy", "s")

    async def run() -> FinishedTrajectory:
        with Actor(Saying(*(f"Action: {reply}" for reply in replies))) as actor:
            async with SandboxPool([environment]) as pool:
                return await roll_out(pool, planned, [actor], record_elements=False, rule=ContextRule(1))

    found = asyncio.run(run())
    assert (found.trajectory.reward, found.trajectory.success) == (pytest.approx(reward), success)
    assert (found.trajectory.termination, found.trajectory.failure_boundary) == (end, None)
    refused = found.steps[0].action_error
    assert (refused is not None and "outside the encyclopedia" in refused) == (reward == 0.2)


class Generous(Judge[Section]):
    """Accepts every answer, and counts how often it is asked."""

    name = "generous"
    asked = 0

    def _score(self, case: JudgeCase) -> Judgement:
        Generous.asked += 1
        return Judgement(0.9, "close enough")


ANSWERS = {
    "finished(content='4 kg')": 0.2,
    "finished(content='5 kg')": 0.0,
    "finished(content='It weighs about as much as four bags of sugar.')": 0.0,
}
"""Answers without an opened page, and their rewards by the rules."""


@pytest.mark.parametrize("judged", [False, True])
def test_a_judge_scores_answers_only_where_the_config_asks_for_it(
    lamps: tuple[SearchEnvironment, list[str]], judged: bool
) -> None:
    section = lamps[0].config.model_copy(update={"judge": judged})
    environment, config = SearchEnvironment("search", section), load_config("laptop", [])
    judge, before = Generous(Section()), Generous.asked
    task = environment.task("search-questions", max_steps=1)
    planned = PlannedTrajectory("lake", "run", 0, task, 1, "policy", "s")

    async def run(reply: str) -> FinishedTrajectory:
        with Actor(Saying(f"Action: {reply}")) as actor:
            async with SandboxPool([environment]) as pool:
                return await roll_out(pool, planned, [actor], record_elements=False, rule=ContextRule(1))

    records = [with_judgement(config, judge, planned, asyncio.run(run(reply))) for reply in ANSWERS]
    rewards = [0.9] * len(ANSWERS) if judged else [*ANSWERS.values()]
    assert [record.trajectory.reward for record in records] == pytest.approx(rewards)
    assert Generous.asked - before == (len(ANSWERS) if judged else 0)


def test_pictures_are_served_on_opened_pages_only_and_other_names_are_no_pages(
    lamps: tuple[SearchEnvironment, list[str]],
) -> None:
    folder = Path(lamps[0].config.corpus)
    (folder / "hidden.png").write_bytes(PIXEL)
    paths = ("own.png", "hidden.png", "none.png", "a%00b.png", f"{'a' * 3000}.png")

    async def ask(sandbox: SearchSandbox) -> list[list[int]]:
        found = list[list[int]]()
        for address in ("/", "/page/hidden.html", "/page/index.html"):
            await sandbox.perform(act.Navigate(content=address))
            async with httpx.AsyncClient(trust_env=False) as client:
                headers = {"host": SITE, VISIT: sandbox._visit_id}
                server = f"http://{sandbox._server.address}/picture"
                found.append([(await client.get(f"{server}/{one}", headers=headers)).status_code for one in paths])
        return found

    assert leased(lamps[0], ask) == [[[404] * 5, [404] * 5, [200, 404, 404, 404, 404]]]


def test_a_narrow_start_page_is_not_scrolled() -> None:
    section = SearchConfig(kind="search", browsers=1, pages=1, width=320, height=480)

    async def look(sandbox: SearchSandbox) -> list[int]:
        return await sandbox.web.evaluate("[scrollX, document.documentElement.scrollWidth - innerWidth]")

    scrolled, wider = leased(SearchEnvironment("search", section), look)[0]
    assert scrolled == 0 and wider <= 0


def test_a_partly_right_set_has_its_share_below_a_success() -> None:
    environment = SearchEnvironment("search", SearchConfig(kind="search", browsers=1, pages=1, partly=0.5))
    aggregation = environment.question
    seed = next(at for at in range(99) if len(_items(aggregation("search-aggregation", at).answer.value)) == 2)

    async def run() -> Outcome:
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("search-aggregation"), seed) as one:
            assert isinstance(one, SearchSandbox)
            return await answered(one, _items(one.question.answer.value)[0])

    assert asyncio.run(run()) == Outcome(True, 0.25, reason="partly right answer: 50% of its items")


def _items(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def test_the_explorer_clicks_and_types_at_random_without_a_failure() -> None:
    environment = SearchEnvironment("search", SearchConfig(kind="search", browsers=1, pages=1))

    async def explore(sandbox: SearchSandbox) -> Outcome:
        explorer = PageExplorer()
        for step in range(25):
            seen = await sandbox.observe(elements=True)
            (completion,) = explorer.act([Context(seen.instruction, (), seen, step, "search/search-chain")])
            assert completion.first is not None
            await sandbox.perform(completion.first)
        return await sandbox.verify(SearchReward())

    assert leased(environment, explore)[0] == Outcome(False, 0.0, reason="no answer")


def test_results_have_a_next_page_and_the_same_seed_looks_the_same() -> None:
    environment = SearchEnvironment("search", SearchConfig(kind="search", browsers=1, pages=1, results=3))

    async def look(sandbox: SearchSandbox) -> tuple[bytes, str, str]:
        first = await sandbox.observe()
        await sandbox.perform(act.Type(content="river town\n"))
        before = await sandbox.text()
        await click(sandbox, "Next page")
        return first.png, before, await sandbox.text()

    found, again = leased(environment, look, look)
    assert found == again
    assert found[1] != found[2] and "Previous page" in found[2]


@pytest.mark.slow
def test_a_reader_answers_and_a_guesser_does_not() -> None:
    rows = asyncio.run(measured(10))
    assert [bar.name for bar in bars(rows) if not bar.ok] == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_two_hundred_questions_are_answered_by_reading_alone() -> None:
    rows = asyncio.run(measured(200))
    assert [bar.name for bar in bars(rows) if not bar.ok] == []
