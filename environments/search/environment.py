"""Run information seeking as an environment: search an encyclopedia in a browser, read pages, and answer a question.

The encyclopedia is generated from a seed, with its questions, or belongs to the user: a folder of HTML or a ZIM file,
with a file of questions. The environment records the pages that a trajectory opens. The verifier assesses the answer
and compares the opened pages with the question's evidence.
"""

import asyncio
import datetime
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import quote, urlsplit

from pydantic import Field, model_validator

from common.process import home
from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.page import PageKind
from environments.chromium.sandbox import BrowserSandbox
from environments.host import Host
from environments.sandbox import Sandbox
from environments.search.corpus import Corpus, GeneratedCorpus, open_corpus
from environments.search.encyclopedia import VERSION, Encyclopedia, encyclopedia_of
from environments.search.generate import QUESTION_FORMS, draw_question
from environments.search.index import Index
from environments.search.questions import Assessment, SearchQuestion, read_questions
from environments.search.served import ORIGIN, SITE, VISIT, SearchHost, SearchServer, Visit
from environments.verifier import Verifier
from environments.webapp.environment import SCRIPT, WebPage
from schemas import action as act
from schemas.config.section import Count, Share, Whole
from schemas.failure import Probe, SandboxFailure
from schemas.observation import Outcome
from schemas.tables.task import JUDGED, GuiTask, TaskEntry
from schemas.tables.trajectory import SeedSplit, split_of

OWN = "search-questions"
"""Template of the task with the user's questions."""
MAX_STEPS = 40
ACTION_MS, WAIT_MS = 100, 1000
"""Milliseconds of the page's time that an action and `wait` take; pages have no scripts, so little changes in it."""
MAX_ADDRESS = 2_000
"""Maximum characters of an address of `navigate`."""
LEFT_S = 5.0
"""Maximum seconds to go back one page."""
Ask = Callable[[str, int], SearchQuestion]


class SearchSandbox(BrowserSandbox):
    """A sandbox for one question, with the pages in a browser context of its own.

    Args:
        browser: the browser.
        config: the environment's section.
        server: the server of the pages.
        ask: returns the question of a template and a seed.
    """

    page = WebPage
    _elements = "__page.elements()"
    question: SearchQuestion
    """The started question."""
    assessment: Assessment | None = None
    """The assessment of the answer; None before the policy ends the trajectory."""

    def __init__(self, browser: Browser, config: "SearchConfig", server: SearchServer, ask: Ask) -> None:
        super().__init__(browser, config)
        self._config, self._server, self._ask = config, server, ask
        self._visit, self._visit_id = Visit(), ""
        self.kind = PageKind(config.width, config.height, "", SCRIPT)

    @property
    def opened(self) -> Sequence[str]:
        """Returns the ids of the pages that were opened, in order."""
        return tuple(self._visit.opened)

    @property
    def searches(self) -> Sequence[str]:
        """Returns the texts of the searches, in order."""
        return tuple(self._visit.searches)

    @property
    def web(self) -> WebPage:
        """Returns the page; raises SandboxFailure before the start."""
        assert isinstance(self._page, WebPage)
        return self._page

    @property
    def rewards(self) -> "SearchConfig":
        """Returns the section, which has the rewards."""
        return self._config

    async def text(self) -> str:
        """Returns the text of the open page, for scripted readers."""
        return await self._page.evaluate("document.querySelector('main')?.innerText ?? ''")

    async def _start(self, task: GuiTask, seed: int) -> None:
        self.question = self._ask(task.template, seed)
        self._instruction = f"{self.question.text} Search the encyclopedia, and finish with {_form(self.question)}."
        self._scripted = iter(self.question.script)
        self._visit_id, self._visit = self._server.begin(self.question.excludes)
        self._opened = page = await WebPage.acquire(self._browser, self.kind)
        await page.send("Network.enable")
        await page.send("Network.setExtraHTTPHeaders", headers={VISIT: self._visit_id})
        await page.open(ORIGIN, "1")
        await self.web.settle(ACTION_MS)

    async def _perform(self, action: act.Action) -> str | None:
        if isinstance(action, act.Navigate):
            return await self._go(action.content)
        if isinstance(action, act.NavigateBack):
            return await self._back()
        return await super()._perform(action)

    async def _react(self, action: act.Action) -> None:
        await self.web.settle(self._lasts_ms(action, WAIT_MS if action.type == "wait" else ACTION_MS))

    async def _conclude(self, action: act.Finished | act.CallUser) -> None:
        self.assessment = (
            self.question.assess(action.content, self._visit.opened)
            if isinstance(action, act.Finished)
            else Assessment("wrong", 0.0)
        )

    async def _stop(self) -> None:
        self._server.end(self._visit_id)
        await super()._stop()

    async def _go(self, address: str) -> str | None:
        """Opens an address of the encyclopedia; returns the reason why another address is not opened."""
        given = address.strip()
        if len(given) > MAX_ADDRESS:
            return f"the address has {len(given)} characters, and at most {MAX_ADDRESS} are allowed"
        if given.startswith("/"):
            given = f"{ORIGIN}{given}"
        elif given.partition("/")[0] == SITE:
            given = f"http://{given}"
        try:
            parts = urlsplit(given)
        except ValueError:
            parts = urlsplit("")
        if (parts.scheme, parts.netloc) != ("http", SITE):
            return f"{address.strip()[:200]} is outside the encyclopedia: only {ORIGIN} can be opened"
        rest = given[len(ORIGIN) :]
        await self.web.open(f"{ORIGIN}{quote(rest, safe='/?&=#%+:;,@!$()*~')}", "1")
        await self.web.settle(ACTION_MS)
        return None

    async def _back(self) -> str | None:
        """Goes back one page; returns the reason why it cannot."""
        page = self.web
        history = await page.send("Page.getNavigationHistory")
        before = history["entries"][: history["currentIndex"]]
        if not before or not str(before[-1]["url"]).startswith(f"{ORIGIN}/"):
            return "there is no page to go back to"
        await page.evaluate("world.__left = true")
        await page.send("Page.navigateToHistoryEntry", entryId=before[-1]["id"])
        async with asyncio.timeout(LEFT_S):
            while await self._still_there():
                await asyncio.sleep(0.01)
        await page.settle(ACTION_MS)
        return None

    async def _still_there(self) -> bool:
        """Checks whether the document that is left is still open."""
        try:
            return bool(await self._page.evaluate("Boolean(world.__left)"))
        except SandboxFailure:
            if not self._browser.alive:
                raise
            return True


class SearchReward(Verifier):
    """Rewards an answer: 1 if it is right and supported, less if it is unsupported or partly right, 0 otherwise."""

    reads = SearchSandbox

    async def outcome(self, sandbox: SearchSandbox) -> Outcome:
        """Returns the reward of the assessment, with its reason; a trajectory without an answer is not done."""
        found, rewards = sandbox.assessment, sandbox.rewards
        if found is None:
            return Outcome(done=False, reward=0.0, reason="no answer")
        reward = {
            "wrong": 0.0, "partly right": rewards.partly * found.share, "unsupported": rewards.unsupported,
            "supported": 1.0,
        }[found.result]  # fmt: skip
        return Outcome(done=True, reward=reward, reason=found.reason)


class SearchConfig(ChromiumConfig):
    """Questions about an encyclopedia (docs/search.md)."""

    seed: Whole = 0
    """Seed of the generated encyclopedia. Another seed has other pages and questions."""
    articles: Annotated[int, Field(ge=200, le=20_000)] = 2_500
    """Number of pages of the generated encyclopedia."""
    corpus: str = ""
    """Your own corpus instead of the generated one: a folder of HTML files, or a ZIM file (`.zim`), relative to the
    working directory of the command."""
    questions: str = ""
    """JSON Lines file with the questions about your own corpus."""
    width: Annotated[int, Field(ge=320, le=4096)] = 800
    """Width of the screen, in pixels."""
    height: Annotated[int, Field(ge=240, le=4096)] = 600
    """Height of the screen, in pixels."""
    results: Count = 10
    """Results on one page of a search."""
    unsupported: Share = 0.2
    """Reward of a right answer without opened pages for all of its facts; 1 makes it a success."""
    partly: Share = 0.5
    """Reward of a partly right set, multiplied by the share of right items."""
    judge: bool = False
    """Let the judge (`judge`) score trajectories instead of the rules for answers."""

    @model_validator(mode="after")
    def _of_one_corpus(self) -> Self:
        if bool(self.corpus) != bool(self.questions):
            given, other = ("corpus", "questions") if self.corpus else ("questions", "corpus")
            raise ValueError(f"`{given}` needs `{other}`, too")
        usual = type(self).model_fields
        for key in ("seed", "articles"):
            if self.corpus and getattr(self, key) != usual[key].default:
                raise ValueError(f"`{key}` has no effect with `corpus`: it determines the generated encyclopedia")
        return self


class SearchEnvironment(ChromiumEnvironment[SearchConfig]):
    """A task for each kind of question; one task with the user's questions for a corpus of the user."""

    section = SearchConfig
    sandbox_class = SearchSandbox
    verifier = "search"

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns tasks by template."""
        templates = (OWN,) if self.config.corpus else tuple(QUESTION_FORMS)
        verifier = JUDGED if self.config.judge else ""
        return {
            name: TaskEntry(
                instruction="{}", tags=("search", name.removeprefix("search-")), max_steps=MAX_STEPS, verifier=verifier
            )
            for name in templates
        }

    @property
    def lineage(self) -> str:
        """Returns the origin of the pages."""
        own = f"flywheel {VERSION} {self.config.seed}/{self.config.articles}"
        return f"search {Path(self.config.corpus).name}" if self.config.corpus else own

    @cached_property
    def corpus(self) -> Corpus:
        """Opens the corpus; raises FlywheelError if there is none."""
        if not self.config.corpus:
            return GeneratedCorpus(self._encyclopedia)
        return open_corpus(Path(self.config.corpus).expanduser().absolute(), f"environments.{self.name}.corpus")

    def question(self, template: str, seed: int) -> SearchQuestion:
        """Returns the question of a task and a seed; raises UsageError for a faulty file of questions."""
        if template != OWN:
            return draw_question(self._encyclopedia, template, seed)
        questions = self._questions[split_of(seed)]
        return questions[seed % len(questions)]

    def host(self) -> Host:
        """Makes the host of a browser that can only reach the corpus; raises FlywheelError without a browser."""
        return SearchHost(self._path(), self._sandbox, self._serve)

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox with a server of its own, which ends with the process; a host's sandboxes share one."""
        return self._sandbox(browser, self._serve())

    def probes(self) -> Sequence[Probe]:
        """Checks and indexes the corpus, checks the questions, and checks the browser."""
        return (Probe("corpus", self._examined), *super().probes())

    def _examined(self) -> str:
        index = self._index()
        index.close()
        if not self.config.corpus:
            return self.corpus.name
        asked = sum(map(len, self._questions.values()))
        return f"{index.count} pages of {self.corpus.name}, {asked} questions"

    def _sandbox(self, browser: Browser, server: SearchServer) -> Sandbox:
        return SearchSandbox(browser, self.config, server, self.question)

    def _serve(self) -> SearchServer:
        return SearchServer(self.corpus, self._index(), self.config.results)

    def _index(self) -> Index:
        return Index(self.corpus, home() / "search")

    @property
    def _encyclopedia(self) -> Encyclopedia:
        return encyclopedia_of(self.config.seed, self.config.articles)

    @cached_property
    def _questions(self) -> Mapping[SeedSplit, tuple[SearchQuestion, ...]]:
        path = Path(self.config.questions).expanduser().absolute()
        return read_questions(path, self.corpus, f"environments.{self.name}.questions")


def _form(question: SearchQuestion) -> str:
    """Describes the form of an answer."""
    value = question.answer.value
    if isinstance(value, datetime.date):
        return "the date alone, as YYYY-MM-DD"
    if isinstance(value, tuple):
        return "all answers alone, separated by commas"
    return "the number alone" if isinstance(value, int | float) else "the answer alone"
