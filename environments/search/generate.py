"""Generate questions about the encyclopedia, with their answers and the pages that hold each fact.

Every question needs two to five pages. A seed determines the form of the question, among those of its task, and its
subjects, which are all of the seed's split.
"""

import datetime
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from environments.search.answers import RightAnswer
from environments.search.encyclopedia import Encyclopedia, Subject, encyclopedia_of
from environments.search.questions import SearchQuestion
from schemas.tables.trajectory import SPLIT_STARTS, SeedSplit, split_of

Evidence = tuple[tuple[str, ...], ...]
MAX_PAGES = 5
DISTINCT = 1_000
"""Number of seeds of each split that ask distinct questions as far as the encyclopedia has them."""
_DRAWS = 500
"""Maximum draws for a question; the smallest encyclopedia needs far fewer."""


class QuestionGenerator:
    """Generates questions about one split of an encyclopedia.

    Args:
        encyclopedia: the encyclopedia.
        split: the split whose subjects are asked about.
        chance: random numbers of the question.
    """

    def __init__(self, encyclopedia: Encyclopedia, split: SeedSplit, chance: random.Random) -> None:
        self._encyclopedia, self._chance = encyclopedia, chance
        self._split: SeedSplit = split

    def _draw(self, kind: str, count: int = 1) -> list[Subject]:
        return self._chance.sample(self._encyclopedia.of(kind, self._split), count)

    def _related(self, subject: Subject, relation: str) -> Subject:
        return self._encyclopedia.by_title[subject.links[relation]]

    def river_of_birthplace(self) -> SearchQuestion | None:
        """Asks for the river at the birthplace of a town's mayor."""
        (town,) = self._draw("town")
        mayor = self._related(town, "mayor")
        home = self._related(mayor, "birthplace")
        text = f"On which river does the town lie where the mayor of {town.title} was born?"
        evidence = ((town.title,), (mayor.title, home.title), (home.title, home.links["river"]))
        return SearchQuestion(text, RightAnswer(home.links["river"]), evidence)

    def length_of_river(self) -> SearchQuestion | None:
        """Asks for the length of the river at the birthplace of a town's mayor."""
        (town,) = self._draw("town")
        mayor = self._related(town, "mayor")
        home = self._related(mayor, "birthplace")
        river = self._related(home, "river")
        text = f"How long is the river at the town where the mayor of {town.title} was born, in km?"
        evidence = ((town.title,), (mayor.title, home.title), (home.title, river.title), (river.title,))
        return SearchQuestion(text, RightAnswer(_number(river, "length"), "km"), evidence)

    def birth_of_founder(self) -> SearchQuestion | None:
        """Asks for the date of birth of a company's founder."""
        (company,) = self._draw("company")
        founder = self._related(company, "founder")
        text = f"On which date was the founder of {company.title} born?"
        return SearchQuestion(text, RightAnswer(_date(founder, "born")), ((company.title,), (founder.title,)))

    def seat_of_employer(self) -> SearchQuestion | None:
        """Asks for the seat of the company that employs the winner of an event."""
        (event,) = self._draw("event")
        winner = self._related(event, "winner")
        company = self._related(winner, "employer")
        text = f"In which town is the seat of the company that employs the winner of the {event.title}?"
        seat = company.links["seat"]
        evidence = ((event.title,), (winner.title, company.title), (company.title, seat))
        return SearchQuestion(text, RightAnswer(seat), evidence)

    def people_at_birthplace(self) -> SearchQuestion | None:
        """Asks for the number of people in the town where the winner of an event was born."""
        (event,) = self._draw("event")
        winner = self._related(event, "winner")
        home = self._related(winner, "birthplace")
        text = f"How many people live in the town where the winner of the {event.title} was born?"
        evidence = ((event.title,), (winner.title, home.title), (home.title,))
        return SearchQuestion(text, RightAnswer(_number(home, "people"), "people"), evidence)

    def mayor_of_larger(self) -> SearchQuestion | None:
        """Compares the people of two towns, and asks for the birthplace of the larger one's mayor."""
        first, second = self._draw("town", 2)
        larger = max(first, second, key=lambda town: _number(town, "people"))
        mayor = self._related(larger, "mayor")
        home = mayor.links["birthplace"]
        text = f"Compare {first.title} and {second.title}: where was the mayor of the town with more people born?"
        evidence = ((first.title,), (second.title,), (mayor.title, home))
        return _if_different(first, second, "people", SearchQuestion(text, RightAnswer(home), evidence))

    def founder_of_older(self) -> SearchQuestion | None:
        """Compares the founding years of two companies, and asks for the birthplace of the older one's founder."""
        first, second = self._draw("company", 2)
        older = min(first, second, key=lambda company: _number(company, "founded"))
        founder = self._related(older, "founder")
        home = founder.links["birthplace"]
        text = f"Compare {first.title} and {second.title}: where was the founder of the older company born?"
        evidence = ((first.title,), (second.title,), (founder.title, home))
        return _if_different(first, second, "founded", SearchQuestion(text, RightAnswer(home), evidence))

    def longer_river(self) -> SearchQuestion | None:
        """Asks for the longer one of the rivers at two towns."""
        first, second = self._draw("town", 2)
        rivers = [self._related(town, "river") for town in (first, second)]
        longer = max(rivers, key=lambda river: _number(river, "length"))
        text = f"Compare {first.title} and {second.title}: which is the longer one of the rivers that they lie on?"
        facts = [(town.title, river.title) for town, river in zip((first, second), rivers, strict=True)]
        evidence = (*facts, (rivers[0].title,), (rivers[1].title,))
        return _if_different(rivers[0], rivers[1], "length", SearchQuestion(text, RightAnswer(longer.title), evidence))

    def people_on_river(self) -> SearchQuestion | None:
        """Asks for the sum of people in the towns on a river."""
        river, towns = self._river()
        text = f"How many people live in the towns on the {river.title} together?"
        total = sum(_number(town, "people") for town in towns)
        return SearchQuestion(text, RightAnswer(total, "people"), ((river.title,), *((town.title,) for town in towns)))

    def old_towns(self) -> SearchQuestion | None:
        """Asks for the towns on a river that are older than a year."""
        river, towns = self._river()
        year = self._year_among([_number(town, "founded") for town in towns])
        older = tuple(town.title for town in towns if _number(town, "founded") < year)
        text = f"Which towns on the {river.title} were founded before the year {year}?"
        question = SearchQuestion(text, RightAnswer(older), ((river.title,), *((town.title,) for town in towns)))
        return question if older else None

    def old_staff(self) -> SearchQuestion | None:
        """Asks for a company's people who were born before a year; their number could be guessed from the year."""
        (company,) = self._draw("company")
        staff = self._encyclopedia.linking("person", "employer", company.title)
        year = self._year_among([_date(person, "born").year for person in staff])
        older = tuple(person.title for person in staff if _date(person, "born").year < year)
        text = f"Which people on the staff of {company.title} were born before the year {year}?"
        question = SearchQuestion(text, RightAnswer(older), ((company.title,), *((person.title,) for person in staff)))
        return question if older else None

    def born_and_employed(self) -> SearchQuestion | None:
        """Asks for the person who was born in a town and works for a company."""
        (person,) = self._draw("person")
        home, company = self._related(person, "birthplace"), self._related(person, "employer")
        born = self._encyclopedia.linking("person", "birthplace", home.title)
        text = f"Who was born in {home.title} and is on the staff of {company.title}?"
        places = (home.title, company.title, person.title)
        evidence = (places[:2], places[1:], (places[0], places[2]))
        alone = [one for one in born if one.links["employer"] == company.title] == [person]
        return SearchQuestion(text, RightAnswer(person.title), evidence) if alone else None

    def born_and_founder(self) -> SearchQuestion | None:
        """Asks for the person who was born in a town and founded a company with its seat in another town."""
        (company,) = self._draw("company")
        seat, founder = self._related(company, "seat"), self._related(company, "founder")
        home = founder.links["birthplace"]
        there = self._encyclopedia.linking("company", "seat", seat.title)
        founders = {
            self._related(one, "founder").title
            for one in there
            if self._related(one, "founder").links["birthplace"] == home
        }
        text = f"Who was born in {home} and founded a company that has its seat in {seat.title}?"
        evidence = ((seat.title,), *((one.title,) for one in there), (home, founder.title))
        alone = founders == {founder.title} and home != seat.title
        return SearchQuestion(text, RightAnswer(founder.title), evidence) if alone else None

    def days_between_events(self) -> SearchQuestion | None:
        """Asks for the days between two events."""
        first, second = sorted(self._draw("event", 2), key=lambda event: _date(event, "date"))
        days = (_date(second, "date") - _date(first, "date")).days
        text = f"How many days after the {first.title} did the {second.title} take place?"
        return SearchQuestion(text, RightAnswer(days, "days"), ((first.title,), (second.title,))) if days else None

    def days_of_winner(self) -> SearchQuestion | None:
        """Asks for the age of an event's winner on the day of the event, in days."""
        (event,) = self._draw("event")
        winner = self._related(event, "winner")
        days = (_date(event, "date") - _date(winner, "born")).days
        text = f"How many days old was the winner of the {event.title} on the day of the event?"
        return SearchQuestion(text, RightAnswer(days, "days"), ((event.title,), (winner.title,)))

    def years_between_foundings(self) -> SearchQuestion | None:
        """Asks for the years between the foundings of a company and of the town of its seat."""
        (company,) = self._draw("company")
        town = self._related(company, "seat")
        years = _number(company, "founded") - _number(town, "founded")
        text = f"How many years after the town of its seat was {company.title} founded?"
        return SearchQuestion(text, RightAnswer(years, "years"), ((company.title,), (town.title,)))

    def _year_among(self, years: Sequence[int]) -> int:
        """Draws a year that is later than the first of some years, and at most the last, unless all are equal."""
        return self._chance.randint(min(min(years) + 1, max(years)), max(years))

    def _river(self) -> tuple[Subject, Sequence[Subject]]:
        (river,) = self._draw("river")
        return river, self._encyclopedia.linking("town", "river", river.title)


QuestionForm = Callable[[QuestionGenerator], SearchQuestion | None]
QUESTION_FORMS: Mapping[str, tuple[QuestionForm, ...]] = {
    "search-chain": (
        QuestionGenerator.river_of_birthplace,
        QuestionGenerator.length_of_river,
        QuestionGenerator.birth_of_founder,
        QuestionGenerator.seat_of_employer,
        QuestionGenerator.people_at_birthplace,
    ),
    "search-comparison": (
        QuestionGenerator.mayor_of_larger,
        QuestionGenerator.founder_of_older,
        QuestionGenerator.longer_river,
    ),
    "search-aggregation": (
        QuestionGenerator.people_on_river,
        QuestionGenerator.old_towns,
        QuestionGenerator.old_staff,
    ),
    "search-intersection": (QuestionGenerator.born_and_employed, QuestionGenerator.born_and_founder),
    "search-dates": (
        QuestionGenerator.days_between_events,
        QuestionGenerator.days_of_winner,
        QuestionGenerator.years_between_foundings,
    ),
}
"""Forms of questions by the template of their task."""


def draw_question(encyclopedia: Encyclopedia, template: str, seed: int) -> SearchQuestion:
    """Generates the question of a task and a seed, about subjects of the seed's split.

    The first `DISTINCT` seeds of a split ask distinct questions; if there are fewer questions, they repeat in turn.

    Raises:
        RuntimeError: the encyclopedia has no such question, which does not happen with 200 or more pages.
    """
    split = split_of(seed)
    if (number := seed - SPLIT_STARTS[split]) < DISTINCT:
        questions = _distinct(encyclopedia.seed, len(encyclopedia.subjects), template, split)
        return questions[number % len(questions)]
    return _drawn(encyclopedia, template, split, random.Random(f"{template} {seed}"))


@cache
def _distinct(seed: int, pages: int, template: str, split: SeedSplit) -> Sequence[SearchQuestion]:
    """Draws up to `DISTINCT` questions of different texts; ends when `_DRAWS` draws in turn are repeats."""
    encyclopedia, chance = encyclopedia_of(seed, pages), random.Random(f"{template} {split}")
    found, repeats = dict[str, SearchQuestion](), 0
    while len(found) < DISTINCT and repeats < _DRAWS:
        question = _drawn(encyclopedia, template, split, chance)
        repeats = repeats + 1 if question.text in found else 0
        found.setdefault(question.text, question)
    return tuple(found.values())


def _drawn(encyclopedia: Encyclopedia, template: str, split: SeedSplit, chance: random.Random) -> SearchQuestion:
    generator = QuestionGenerator(encyclopedia, split, chance)
    for _ in range(_DRAWS):
        question = chance.choice(QUESTION_FORMS[template])(generator)
        if question is not None and _needs_reading(question):
            return question
    raise RuntimeError(f"{template} has no question in the split {split}")


def _needs_reading(question: SearchQuestion) -> bool:
    """Checks that a question needs two to five pages, and that its text does not have the answer."""
    value = question.answer.value
    given = value if isinstance(value, tuple) else (value,)
    named = any(re.search(rf"\b{re.escape(str(item))}\b", question.text) for item in given)
    return not named and 2 <= len({pages[0] for pages in question.evidence}) <= MAX_PAGES


def _if_different(first: Subject, second: Subject, name: str, question: SearchQuestion) -> SearchQuestion | None:
    """Returns the question unless both subjects have the same value."""
    return None if first.values[name] == second.values[name] else question


def _number(subject: Subject, name: str) -> int:
    value = subject.values[name]
    assert isinstance(value, int)
    return value


def _date(subject: Subject, name: str) -> datetime.date:
    value = subject.values[name]
    assert isinstance(value, datetime.date)
    return value
