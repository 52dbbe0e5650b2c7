"""Generate a fictional encyclopedia from a seed: rivers, towns, people, companies and events that link to each other.

Names are syllables and values are random, so that no model knows an answer. The encyclopedia has three provinces, one
for each split of seeds. Pages of one province never name a subject of another, so test questions are about other
subjects than training questions.
"""

import datetime
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from html import escape
from urllib.parse import quote

from schemas.tables.trajectory import SeedSplit

VERSION = "encyclopedia-1"
"""Changes when a seed makes other pages."""
SHARES: Mapping[SeedSplit, float] = {"train": 0.6, "validation": 0.2, "test": 0.2}
"""Share of the pages in each split's province."""
Value = str | int | datetime.date
_ONSETS = ("b", "br", "d", "dr", "f", "g", "gr", "h", "k", "kl", "l", "m", "n", "p", "r", "s", "st", "t", "v", "z")
_VOWELS, _CODAS = ("a", "e", "i", "o", "u"), ("", "", "", "l", "n", "r", "s")
_COMPANIES = ("Mills", "Foundry", "Press", "Glassworks", "Brewery", "Instruments", "Timber", "Ceramics")
_EVENTS = ("Regatta", "Fair", "Chess Open", "Bridge Race", "Song Contest", "Harvest Run")
_OCCUPATIONS = ("engineer", "printer", "surveyor", "chemist", "painter", "botanist", "pilot", "architect", "composer")
_LANDSCAPES = (
    "in the hills",
    "on a wide plain",
    "in a wooded valley",
    "near the old salt road",
    "below a limestone ridge",
)
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


@dataclass(slots=True)
class Subject:
    """The subject of one page, such as a town."""

    title: str
    """Title, and id of its page."""
    kind: str
    """`river`, `town`, `person`, `company` or `event`."""
    split: SeedSplit
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    """Plain facts by name."""
    links: dict[str, str] = field(default_factory=dict[str, str])
    """Titles of related subjects, by relation."""


@dataclass(frozen=True)
class Encyclopedia:
    """All subjects that a seed determines."""

    seed: int
    subjects: tuple[Subject, ...]
    by_title: Mapping[str, Subject]
    inverse: Mapping[tuple[str, str, str], tuple[str, ...]]
    """Titles of the linking subjects in order, by their kind, the relation, and the title that they link to."""

    def of(self, kind: str, split: SeedSplit) -> list[Subject]:
        """Lists the subjects of a kind in a split."""
        return self._members.get((kind, split), [])

    @cached_property
    def _members(self) -> Mapping[tuple[str, str], list[Subject]]:
        found: dict[tuple[str, str], list[Subject]] = {}
        for one in self.subjects:
            found.setdefault((one.kind, one.split), []).append(one)
        return found

    def linking(self, kind: str, relation: str, title: str) -> list[Subject]:
        """Lists the subjects of a kind that have a relation to a title."""
        return [self.by_title[one] for one in self.inverse.get((kind, relation, title), ())]


@cache
def encyclopedia_of(seed: int, pages: int) -> Encyclopedia:
    """Generates the encyclopedia of a seed.

    Args:
        seed: any number.
        pages: number of pages, at least 200.
    """
    chance = random.Random(f"{VERSION} {seed}")
    taken, subjects = set[str](), list[Subject]()
    for split, share in SHARES.items():
        rest = pages - len(subjects) if split == "test" else round(pages * share)
        subjects += _province(chance, split, rest, taken)
    inverse: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for one in sorted(subjects, key=lambda subject: subject.title):
        for relation, title in one.links.items():
            at = (one.kind, relation, title)
            inverse[at] = (*inverse.get(at, ()), one.title)
    return Encyclopedia(seed, tuple(subjects), {one.title: one for one in subjects}, inverse)


def _province(chance: random.Random, split: SeedSplit, pages: int, taken: set[str]) -> list[Subject]:
    """Generates the subjects of one split, which link only to each other."""

    def made(kind: str, count: int, title: str) -> list[Subject]:
        return [Subject(title.format(_word(chance, taken), **_extra(chance)), kind, split) for _ in range(count)]

    rivers, towns = made("river", pages // 12, "River {}"), made("town", pages // 4, "{}")
    companies, events = made("company", pages // 8, "{} {company}"), made("event", pages // 8, "{} {event}")
    people = [
        Subject(f"{_word(chance, taken)} {_word(chance, taken)}", "person", split)
        for _ in range(pages - sum(map(len, (rivers, towns, companies, events))))
    ]
    for one in rivers:
        one.values = {"length": chance.randrange(40, 900), "bridges": chance.randrange(2, 40)}
    mayors = chance.sample(people, len(towns))
    for at, one in enumerate(towns):
        one.values = {"people": chance.randrange(2_000, 90_000), "founded": chance.randrange(900, 1780)}
        one.values["land"] = chance.choice(_LANDSCAPES)
        one.links = {"river": rivers[at % len(rivers)].title, "mayor": mayors[at].title}
    mayor_of = {mayor.title: town.title for mayor, town in zip(mayors, towns, strict=True)}
    for at, one in enumerate(people):
        homes = [town for town in towns if town.title != mayor_of.get(one.title)]
        one.values = {"born": _day(chance, 1850, 1899), "work": chance.choice(_OCCUPATIONS)}
        one.links = {"birthplace": chance.choice(homes).title, "employer": companies[at % len(companies)].title}
    for one in companies:
        one.values = {"founded": chance.randrange(1790, 1940), "machines": chance.randrange(12, 900)}
        one.links = {"seat": chance.choice(towns).title, "founder": chance.choice(people).title}
    for one in events:
        one.values = {"date": _day(chance, 1921, 1949), "visitors": chance.randrange(300, 60_000)}
        one.links = {"town": chance.choice(towns).title, "winner": chance.choice(people).title}
    return [*rivers, *towns, *people, *companies, *events]


def _word(chance: random.Random, taken: set[str]) -> str:
    while True:
        parts = [
            chance.choice(_ONSETS) + chance.choice(_VOWELS) + chance.choice(_CODAS)
            for _ in range(chance.choice((2, 2, 3)))
        ]
        word = "".join(parts).capitalize()
        if word not in taken:
            taken.add(word)
            return word


def _extra(chance: random.Random) -> dict[str, str]:
    return {"company": chance.choice(_COMPANIES), "event": chance.choice(_EVENTS)}


def _day(chance: random.Random, first: int, last: int) -> datetime.date:
    begin = datetime.date(first, 1, 1)
    return begin + datetime.timedelta(days=chance.randrange((datetime.date(last, 12, 31) - begin).days))


def written(value: Value) -> str:
    """Writes a value as pages show it: `3 May 1861`, `12,400`; a number below 2,000 has no comma."""
    if isinstance(value, datetime.date):
        return f"{value.day} {_MONTHS[value.month - 1]} {value.year}"
    return f"{value:,}" if isinstance(value, int) and value >= 2_000 else str(value)


def article_of(subject: Subject, encyclopedia: Encyclopedia) -> str:
    """Renders a subject's article as an HTML document: a table of facts, sentences, and lists of links."""
    table, sentences, lists = _PARTS[subject.kind](subject, encyclopedia)
    rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in table)
    text = "".join(f"<p>{one}</p>" for one in sentences)
    listed = "".join(
        f"<h2>{name}</h2><ul>{''.join(f'<li>{_link(one.title)}</li>' for one in found)}</ul>"
        for name, found in lists
        if found
    )
    title = escape(subject.title)
    return f"<title>{title}</title><h1>{title}</h1><table>{rows}</table>{text}{listed}"


Parts = tuple[Iterable[tuple[str, str]], Iterable[str], Iterable[tuple[str, Sequence[Subject]]]]


def _link(title: str) -> str:
    return f'<a href="{quote(title)}">{escape(title)}</a>'


def _river(one: Subject, encyclopedia: Encyclopedia) -> Parts:
    return (
        (("Kind", "River"), ("Length", f"{written(one.values['length'])} km")),
        (f"The {one.title} is a river. It is crossed by {one.values['bridges']} bridges.",),
        (("Towns on the river", encyclopedia.linking("town", "river", one.title)),),
    )


def _town(one: Subject, encyclopedia: Encyclopedia) -> Parts:
    return (
        (("Kind", "Town"), ("People", written(one.values["people"])), ("Lies on", _link(one.links["river"]))),
        (
            f"{one.title} is a town {one.values['land']}. It was founded in the year {one.values['founded']}.",
            f"The mayor of {one.title} is {_link(one.links['mayor'])}.",
        ),
        (
            ("Born here", encyclopedia.linking("person", "birthplace", one.title)),
            ("Companies", encyclopedia.linking("company", "seat", one.title)),
            ("Events", encyclopedia.linking("event", "town", one.title)),
        ),
    )


def _person(one: Subject, encyclopedia: Encyclopedia) -> Parts:
    return (
        (("Kind", "Person"), ("Occupation", str(one.values["work"])), ("Employer", _link(one.links["employer"]))),
        (f"{one.title} was born on {written(one.values['born'])} in {_link(one.links['birthplace'])}.",),
        (),
    )


def _company(one: Subject, encyclopedia: Encyclopedia) -> Parts:
    return (
        (("Kind", "Company"), ("Founded", str(one.values["founded"])), ("Seat", _link(one.links["seat"]))),
        (f"{one.title} was founded by {_link(one.links['founder'])}. It runs {one.values['machines']} machines.",),
        (("Staff", encyclopedia.linking("person", "employer", one.title)),),
    )


def _event(one: Subject, encyclopedia: Encyclopedia) -> Parts:
    return (
        (("Kind", "Event"), ("Date", written(one.values["date"])), ("Visitors", written(one.values["visitors"]))),
        (f"The {one.title} took place in {_link(one.links['town'])}. It was won by {_link(one.links['winner'])}.",),
        (),
    )


_PARTS = {"river": _river, "town": _town, "person": _person, "company": _company, "event": _event}
