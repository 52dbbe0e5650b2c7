"""Measure scripted readers on generated questions of the environment `search`, in a real browser.

`python -m benchmarks.search [--questions N]`

The questions are distinct, and those of test seeds from 6,000,000 on, which no choice of the readers or of the product
has seen.

`reader` searches, opens pages and computes the answer from their text. `guesser` answers from the question alone.
`one page` opens the first page that the question names, and answers with a value from it. The table has the mean reward
of each reader, and the share of its answers that are right whether or not the opened pages support them.
"""

import argparse
import asyncio
import random
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from benchmarks.harness import Bar, add_options, finish
from environments.pool import SandboxPool
from environments.search.answers import date_in
from environments.search.environment import SearchConfig, SearchEnvironment, SearchReward, SearchSandbox
from schemas.action import Click, Finished, Scroll, TripleClick, Type
from schemas.observation import Element

QUESTIONS, SHORT_QUESTIONS = 200, 20
MAX_GUESSED, MAX_ONE_PAGE = 0.05, 0.3
"""Maximum mean rewards of the readers that open no page or one."""
ARTICLES = 1_000
FIRST_SEED = 6_000_000
"""First seed of the questions; no other benchmark and no run uses these test seeds."""
MAX_SCROLLS = 12
_FACTS = {
    "people": r"People\s+([\d,]+)",
    "length": r"Length\s+([\d,]+) km",
    "river": r"Lies on\s+(River \w+)",
    "year": r"(?:Founded\s+|in the year )(\d+)",
    "mayor": r"The mayor of \w+ is (\w+ \w+)\.",
    "born": r"was born on (\d+ \w+ \d+) in",
    "birthplace": r"was born on \d+ \w+ \d+ in (\w+)\.",
    "employer": r"Employer\s+(\w+ \w+)",
    "seat": r"Seat\s+(\w+)",
    "founder": r"was founded by (\w+ \w+)\.",
    "winner": r"It was won by (\w+ \w+)\.",
    "date": r"Date\s+(\d+ \w+ \d+)",
}
"""Patterns of facts in the text of a page."""
_LISTS = {"towns": "Towns on the river", "staff": "Staff", "born here": "Born here", "companies": "Companies"}


class Reader:
    """Reads pages as a person does: types into the search field, clicks links, scrolls.

    Args:
        sandbox: the started sandbox.
    """

    def __init__(self, sandbox: SearchSandbox) -> None:
        self._sandbox = sandbox
        self.steps = 0

    async def fact(self, title: str, name: str) -> str:
        """Opens the page of a title and returns one of its facts."""
        found = re.search(_FACTS[name], await self.page(title))
        assert found is not None, (title, name)
        return found[1]

    async def number(self, title: str, name: str) -> int:
        """Returns a fact that is a number."""
        return int((await self.fact(title, name)).replace(",", ""))

    async def day(self, title: str, name: str) -> Any:
        """Returns a fact that is a date."""
        return date_in(await self.fact(title, name))

    async def items(self, title: str, name: str) -> list[str]:
        """Returns the items of a list of a page."""
        lines = [line.strip() for line in (await self.page(title)).splitlines()]
        headings = set(_LISTS.values()) | {"Events"}
        if _LISTS[name] not in lines:
            return []
        listed = lines[lines.index(_LISTS[name]) + 1 :]
        end = next((at for at, line in enumerate(listed) if line in headings), len(listed))
        return [line for line in listed[:end] if line]

    async def page(self, title: str) -> str:
        """Opens the page of a title, by a link on the screen or else by a search, and returns its text."""
        if (text := await self._sandbox.text()).split("\n")[0] == title:
            return text
        if not await self._follow(title, scrolls=0):
            await self._search(title)
            while not await self._follow(title, scrolls=MAX_SCROLLS):
                assert await self._follow("Next page", scrolls=0), title
        return await self._sandbox.text()

    async def _search(self, words: str) -> None:
        field = await self._named("Search", "text field")
        assert field is not None
        x, y = field.centre
        await self._act(TripleClick(x=x, y=y))
        await self._act(Type(content=f"{words}\n"))

    async def _follow(self, name: str, scrolls: int) -> bool:
        for number in range(scrolls + 1):
            if (link := await self._named(name, "link")) is not None:
                x, y = link.centre
                await self._act(Click(x=x, y=y))
                return True
            if number < scrolls:
                await self._act(Scroll(x=0.5, y=0.5, direction="down"))
        return False

    async def _named(self, name: str, kind: str) -> Element | None:
        shown = (await self._sandbox.observe(elements=True)).elements
        return next((one for one in shown if one.name == name and one.kind == kind), None)

    async def _act(self, action: Click | TripleClick | Type | Scroll) -> None:
        self.steps += 1
        refused = await self._sandbox.perform(action)
        assert refused is None, refused


Solver = Callable[..., Awaitable[str]]


async def _river_of_birthplace(read: Reader, town: str) -> str:
    return await read.fact(await read.fact(await read.fact(town, "mayor"), "birthplace"), "river")


async def _length(read: Reader, town: str) -> str:
    return await read.fact(await _river_of_birthplace(read, town), "length")


async def _founder_born(read: Reader, company: str) -> str:
    return str(await read.day(await read.fact(company, "founder"), "born"))


async def _seat_of_employer(read: Reader, event: str) -> str:
    return await read.fact(await read.fact(await read.fact(event, "winner"), "employer"), "seat")


async def _people_at_birthplace(read: Reader, event: str) -> str:
    return await read.fact(await read.fact(await read.fact(event, "winner"), "birthplace"), "people")


async def _mayor_of_larger(read: Reader, first: str, second: str) -> str:
    people = {town: await read.number(town, "people") for town in (first, second)}
    return await read.fact(await read.fact(max(people, key=people.__getitem__), "mayor"), "birthplace")


async def _founder_of_older(read: Reader, first: str, second: str) -> str:
    years = {company: await read.number(company, "year") for company in (first, second)}
    return await read.fact(await read.fact(min(years, key=years.__getitem__), "founder"), "birthplace")


async def _longer_river(read: Reader, first: str, second: str) -> str:
    rivers = [await read.fact(town, "river") for town in (first, second)]
    lengths = {river: await read.number(river, "length") for river in rivers}
    return max(lengths, key=lengths.__getitem__)


async def _people_on_river(read: Reader, river: str) -> str:
    towns = await read.items(river, "towns")
    return str(sum([await read.number(town, "people") for town in towns]))


async def _old_towns(read: Reader, river: str, year: str) -> str:
    towns = await read.items(river, "towns")
    return ", ".join([town for town in towns if await read.number(town, "year") < int(year)])


async def _old_staff(read: Reader, company: str, year: str) -> str:
    staff = await read.items(company, "staff")
    return ", ".join([person for person in staff if (await read.day(person, "born")).year < int(year)])


async def _born_and_employed(read: Reader, town: str, company: str) -> str:
    staff = await read.items(company, "staff")
    (person,) = [person for person in await read.items(town, "born here") if person in staff]
    return person


async def _born_and_founder(read: Reader, home: str, seat: str) -> str:
    founders = {await read.fact(company, "founder") for company in await read.items(seat, "companies")}
    (person,) = [person for person in await read.items(home, "born here") if person in founders]
    return person


async def _days_between(read: Reader, first: str, second: str) -> str:
    return str((await read.day(second, "date") - await read.day(first, "date")).days)


async def _days_of_winner(read: Reader, event: str) -> str:
    day = await read.day(event, "date")
    return str((day - await read.day(await read.fact(event, "winner"), "born")).days)


async def _years_between(read: Reader, company: str) -> str:
    year = await read.number(company, "year")
    return str(year - await read.number(await read.fact(company, "seat"), "year"))


SOLVERS: Mapping[str, Solver] = {
    r"On which river does the town lie where the mayor of (.+) was born\?": _river_of_birthplace,
    r"How long is the river at the town where the mayor of (.+) was born, in km\?": _length,
    r"On which date was the founder of (.+) born\?": _founder_born,
    r"In which town is the seat of the company that employs the winner of the (.+)\?": _seat_of_employer,
    r"How many people live in the town where the winner of the (.+) was born\?": _people_at_birthplace,
    r"Compare (.+) and (.+): where was the mayor of the town with more people born\?": _mayor_of_larger,
    r"Compare (.+) and (.+): where was the founder of the older company born\?": _founder_of_older,
    r"Compare (.+) and (.+): which is the longer one of the rivers that they lie on\?": _longer_river,
    r"How many people live in the towns on the (.+) together\?": _people_on_river,
    r"Which towns on the (.+) were founded before the year (\d+)\?": _old_towns,
    r"Which people on the staff of (.+) were born before the year (\d+)\?": _old_staff,
    r"Who was born in (.+) and is on the staff of (.+)\?": _born_and_employed,
    r"Who was born in (.+) and founded a company that has its seat in (.+)\?": _born_and_founder,
    r"How many days after the (.+) did the (.+) take place\?": _days_between,
    r"How many days old was the winner of the (.+) on the day of the event\?": _days_of_winner,
    r"How many years after the town of its seat was (.+) founded\?": _years_between,
}
"""Ways to find an answer, by the pattern of the question's text."""


async def reader(sandbox: SearchSandbox, text: str, chance: random.Random) -> str:
    """Finds the answer by the way of its question."""
    way, named = _way(text)
    return await way(Reader(sandbox), *named)


async def guesser(sandbox: SearchSandbox, text: str, chance: random.Random) -> str:
    """Guesses from the question alone: one of the names in it, or a likely number or date."""
    names = [name for name in _way(text)[1] if not name.isdigit()]
    if text.startswith("How"):
        return str(chance.randrange(100, 20_000))
    return f"18{chance.randrange(50, 99)}-0{chance.randrange(1, 9)}-15" if "date" in text else chance.choice(names)


async def one_page(sandbox: SearchSandbox, text: str, chance: random.Random) -> str:
    """Opens the first page that the question names, and answers with a fact or an item of it."""
    name = _way(text)[1][0]
    read = Reader(sandbox)
    found = await read.page(name)
    facts = [one[1] for pattern in _FACTS.values() if (one := re.search(pattern, found))]
    items = [item for listed in _LISTS for item in await read.items(name, listed)]
    if text.startswith("How"):
        return chance.choice([fact for fact in facts if fact[0].isdigit()] or ["1"])
    names = [fact for fact in facts if not fact[0].isdigit()] + items
    return chance.choice(items if items and text.startswith("Wh") else names or ["1"])


Read = Callable[[SearchSandbox, str, random.Random], Awaitable[str]]
READERS: Mapping[str, Read] = {"reader": reader, "guesser": guesser, "one page": one_page}


def _way(text: str) -> tuple[Solver, tuple[str, ...]]:
    for pattern, way in SOLVERS.items():
        if found := re.match(pattern, text):
            return way, found.groups()
    raise LookupError(text)


Asked = tuple[str, int]
"""A template and a seed."""


def asked(environment: SearchEnvironment, count: int) -> list[Asked]:
    """Returns the first distinct questions from `FIRST_SEED` on, of each task in turn."""
    templates = list(environment.entries)
    seeds, seen, found = dict.fromkeys(templates, FIRST_SEED), set[str](), list[Asked]()
    while len(found) < count:
        template = templates[len(found) % len(templates)]
        text, seed = environment.question(template, seeds[template]).text, seeds[template]
        seeds[template] += 1
        if text not in seen:
            seen.add(text)
            found.append((template, seed))
    return found


async def rewards(
    pool: SandboxPool, environment: SearchEnvironment, read: Read, questions: Sequence[Asked]
) -> list[Any]:
    """Lets a reader answer questions, and returns the outcome and the assessment of each."""

    async def one(template: str, seed: int) -> Any:
        async with pool.lease(environment.task(template), seed) as sandbox:
            assert isinstance(sandbox, SearchSandbox)
            text = (await sandbox.observe()).instruction
            answer = await read(sandbox, text, random.Random(f"{read.__name__} {template} {seed}"))
            await sandbox.conclude(Finished(content=answer))
            return await sandbox.verify(SearchReward()), sandbox.assessment

    found = list[Any]()
    for begin in range(0, len(questions), environment.size):
        found += await asyncio.gather(*(one(*key) for key in questions[begin : begin + environment.size]))
    return found


async def measured(count: int) -> list[dict[str, Any]]:
    """Returns a row for each reader."""
    environment = SearchEnvironment("search", SearchConfig(kind="search", articles=ARTICLES, browsers=1, pages=2))
    questions = asked(environment, count)
    rows = list[dict[str, Any]]()
    async with SandboxPool([environment]) as pool:
        for name, read in READERS.items():
            begun = time.perf_counter()
            found = await rewards(pool, environment, read, questions)
            right = sum(assessment.share == 1.0 for _, assessment in found)
            row = {"reader": name, "questions": count, "reward": sum(outcome.reward for outcome, _ in found) / count}
            rows.append(row | {"right": right / count, "seconds": round(time.perf_counter() - begun, 1)})
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints the table, and returns 1 if a bar is missed."""
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--questions", type=int, default=None, help=f"questions of each reader (default {QUESTIONS})")
    options = parser.parse_args(arguments)
    rows = asyncio.run(measured(options.questions or (SHORT_QUESTIONS if options.short else QUESTIONS)))
    return finish("search", rows, bars(rows), options)


def bars(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """Returns the targets: each reader's mean reward."""
    reward = {row["reader"]: row["reward"] for row in rows}
    return [
        Bar("reward of the reader", reward["reader"], 1.0, "higher"),
        Bar("reward of the guesser", reward["guesser"], MAX_GUESSED, "lower"),
        Bar("reward after one page", reward["one page"], MAX_ONE_PAGE, "lower"),
    ]


if __name__ == "__main__":
    sys.exit(main())
