"""Questions about the encyclopedia: the same for a seed, other subjects for another split, evidence on their pages."""

import itertools
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from environments.catalog import whole_catalog
from environments.search.corpus import GeneratedCorpus
from environments.search.encyclopedia import Encyclopedia, encyclopedia_of
from environments.search.environment import SearchConfig, SearchEnvironment
from environments.search.generate import QUESTION_FORMS, draw_question
from environments.search.questions import SearchQuestion, read_questions
from schemas.action import Finished, Navigate
from schemas.config import load_config
from schemas.failure import FlywheelError, UsageError
from schemas.registry import options_of
from schemas.tables.trajectory import SPLIT_STARTS

SMALLEST = 200


def some(world: Encyclopedia, begin: int, count: int = 25) -> list[SearchQuestion]:
    return [draw_question(world, template, begin + at) for template in QUESTION_FORMS for at in range(count)]


def test_an_encyclopedia_is_the_same_for_a_seed_and_another_one_for_another() -> None:
    first, again = encyclopedia_of(3, SMALLEST), encyclopedia_of.__wrapped__(3, SMALLEST)
    other = encyclopedia_of(4, SMALLEST)
    corpus, repeated = GeneratedCorpus(first), GeneratedCorpus(again)
    assert [corpus.page(key) for key in corpus.listed()] == [repeated.page(key) for key in repeated.listed()]
    assert len(first.by_title) == len(first.subjects) == SMALLEST
    assert len(set(first.by_title) & set(other.by_title)) < 5


def test_every_link_of_a_page_leads_to_a_page_of_the_same_split() -> None:
    world = encyclopedia_of(0, SMALLEST)
    for one in world.subjects:
        assert {world.by_title[title].split for title in one.links.values()} <= {one.split}


def test_questions_are_the_same_for_a_seed_and_their_splits_share_no_page() -> None:
    world = encyclopedia_of(0, SMALLEST)
    asked = {split: some(world, begin) for split, begin in SPLIT_STARTS.items()}
    assert asked["train"] == some(world, 0)
    pages = {split: {page for one in asked[split] for fact in one.evidence for page in fact} for split in asked}
    for first, second in itertools.combinations(pages.values(), 2):
        assert not first & second
    for split, questions in asked.items():
        assert {world.by_title[page].split for page in pages[split]} == {split}
        assert len({one.text for one in questions}) > 50


@pytest.mark.parametrize("template", QUESTION_FORMS)
def test_two_hundred_test_seeds_ask_distinct_questions_by_default(template: str) -> None:
    world = encyclopedia_of(1, SearchConfig.model_fields["articles"].default)
    texts = [draw_question(world, template, SPLIT_STARTS["test"] + at).text for at in range(200)]
    assert len(set(texts)) == 200


def test_seeds_repeat_only_where_the_encyclopedia_has_no_more_questions() -> None:
    world = encyclopedia_of(0, SMALLEST)
    towns, companies = (len(world.of(kind, "test")) for kind in ("town", "company"))
    texts = [draw_question(world, "search-chain", SPLIT_STARTS["test"] + at).text for at in range(100)]
    most = 2 * towns + 3 * companies
    assert len(set(texts)) == len(set(texts[:most])) >= most - 1


def test_no_answer_is_frequent_among_the_questions_of_a_form() -> None:
    """The best constant guess for each beginning of a text, and the threshold by which counts could be guessed."""
    answers, asked = defaultdict[str, Counter[str]](Counter), Counter[str]()
    worlds = [encyclopedia_of(seed, SMALLEST) for seed in range(12)]
    for world in worlds:
        for question in some(world, 0, 100):
            form = re.sub(r" (River )?[A-Z]\w+( [A-Z]\w+)*|\d+", " X", question.text)
            asked[form] += 1
            answers[form][str(question.answer.value)] += 1
            if year := re.search(r"before the year (\d+)", question.text):
                for slope in (1, 2, 3, 4):
                    guess = str(round((int(year[1]) - 1850) / 50 * slope))
                    assert question.answer.share(guess) == 0.0
    assert len(asked) == sum(map(len, QUESTION_FORMS.values()))
    for form, found in answers.items():
        assert found.most_common(1)[0][1] < 0.05 * asked[form], (form, found.most_common(3))


def test_a_question_needs_two_to_five_pages_and_never_holds_its_answer() -> None:
    for one in some(encyclopedia_of(0, SMALLEST), 0):
        assert not any(all(page in fact for fact in one.evidence) for fact in one.evidence for page in fact)
        assert 2 <= len({fact[0] for fact in one.evidence}) <= 5
        given = one.answer.value if isinstance(one.answer.value, tuple) else (one.answer.value,)
        assert not any(re.search(rf"\b{re.escape(str(item))}\b", one.text) for item in given)


def test_the_script_of_a_question_opens_its_evidence_and_gives_the_answer() -> None:
    for question in some(encyclopedia_of(0, SMALLEST), 0):
        *opens, last = question.script
        assert isinstance(last, Finished) and 2 <= len(opens) <= 5
        pages = [one.content.removeprefix("/page/") for one in opens if isinstance(one, Navigate)]
        assert question.assess(last.content, pages).result == "supported", question.text


def test_an_answer_without_the_pages_of_its_facts_is_right_but_unsupported() -> None:
    asked = [one for one in some(encyclopedia_of(0, SMALLEST), 0) if isinstance(one.answer.value, tuple)]
    one = next(one for one in asked if isinstance(one.answer.value, tuple) and len(one.answer.value) == 2)
    pages = [fact[-1] for fact in one.evidence]
    words = ", ".join(map(str, one.answer.value))
    assert one.assess(words, pages).result == "supported"
    assert one.assess(words, pages[1:]).missing == (one.evidence[0],)
    assert one.assess(words, pages[1:]).result == "unsupported"
    assert one.evidence[0][0] in one.assess(words, pages[1:]).reason
    assert one.assess(words.split(",")[0], pages).result == "partly right"
    assert one.assess("nothing", pages).result == "wrong"


LINE = {"question": "Who?", "answer": "Osk", "evidence": ["PAGE", ["PAGE", "OTHER"]]}


def written(folder: Path, *lines: object) -> Path:
    file = folder / "questions.jsonl"
    file.write_text("\n".join(json.dumps(one) if isinstance(one, dict) else str(one) for one in lines))
    return file


def test_a_file_of_questions_is_read_by_split(tmp_path: Path) -> None:
    corpus = GeneratedCorpus(encyclopedia_of(0, SMALLEST))
    first, second, *_ = corpus.listed()
    line = {**LINE, "evidence": [first, [first, second]]}
    lines = [
        line,
        "",
        {**line, "split": "validation", "kind": "number", "answer": 3, "unit": "km", "tolerance": 0.5},
        {**line, "split": "test", "kind": "date", "answer": "3 May 1861", "excludes": ["River X"][:0]},
        {**line, "split": "test", "kind": "set", "answer": ["a", "b"]},
    ]
    found = read_questions(written(tmp_path, *lines), corpus, "environments.search.questions")
    assert {split: len(questions) for split, questions in found.items()} == {"train": 1, "validation": 1, "test": 2}
    assert found["train"][0].evidence == ((first,), (first, second))
    assert found["validation"][0].answer.share("3.4 km") == found["test"][1].answer.share("b, a") == 1.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"answer": None}, r"line 2: answer"),
        ({"kind": "date"}, r"line 2: `answer`: 'Osk' is no date"),
        ({"kind": "number"}, r"line 2: `answer`: 'Osk' is no number"),
        ({"kind": "number", "answer": True}, r"line 2: (`answer`|answer)"),
        ({"kind": "guess"}, r"line 2: kind"),
        ({"unit": "km"}, r"line 2: `unit`: only a number has one"),
        ({"evidence": []}, r"line 2: evidence"),
        ({"evidence": ["No such page"]}, r"line 2: `evidence`: .* has no page No such page"),
        ({"excludes": ["No such page"]}, r"line 2: `excludes`: .* has no page No such page"),
        ({"excludes": ["PAGE"]}, r"line 2: `excludes`: .* is also in `evidence`"),
        ({"split": "dev"}, r"line 2: split"),
        ({"hint": "x"}, r"line 2: hint: there is no such field"),
        ({"tolerance": -1}, r"line 2: tolerance"),
    ],
)
def test_a_faulty_question_is_refused_with_its_line_and_field(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    corpus = GeneratedCorpus(encyclopedia_of(0, SMALLEST))
    first, second, *_ = corpus.listed()
    text = json.dumps(LINE) + "\n" + json.dumps({**LINE, **changed})
    file = written(tmp_path, text.replace("PAGE", first).replace("OTHER", second))
    with pytest.raises(UsageError, match=message):
        read_questions(file, corpus, "environments.search.questions")


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    corpus = GeneratedCorpus(encyclopedia_of(0, SMALLEST))
    first = next(corpus.listed())
    with pytest.raises(UsageError, match="line 1: "):
        read_questions(written(tmp_path, "{"), corpus, "key")
    with pytest.raises(UsageError, match="has no question with `split` validation"):
        read_questions(written(tmp_path, {**LINE, "evidence": [first]}), corpus, "key")
    with pytest.raises(UsageError, match=r"`key`: .* cannot be read"):
        read_questions(tmp_path / "none", corpus, "key")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"corpus": "pages"}, "`corpus` needs `questions`"),
        ({"questions": "asked.jsonl"}, "`questions` needs `corpus`"),
        ({"corpus": "pages", "questions": "asked.jsonl", "articles": 400}, "`articles` has no effect with `corpus`"),
        ({"articles": 10}, r"environments\.search\.articles"),
        ({"width": 100}, r"environments\.search\.width"),
    ],
)
def test_a_section_that_contradicts_itself_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options_of(SearchConfig, {"kind": "search", **given}, "environments.search")


def test_its_tasks_are_scored_by_rules_unless_the_config_asks_for_the_judge() -> None:
    asked = ['suite.tasks=["search-chain"]', "suite.held_out=[]", "suite.practice=[]", "environments.search.browsers=1"]
    config = load_config("laptop", asked)
    assert [task.verifier for task in whole_catalog(config)] == ["search"]
    config = load_config("laptop", [*asked, "environments.search.judge=true"])
    assert [task.verifier for task in whole_catalog(config)] == ["judge"]


def test_a_missing_corpus_is_refused_with_its_key(tmp_path: Path) -> None:
    section = SearchConfig(kind="search", corpus=str(tmp_path / "none"), questions="asked.jsonl")
    with pytest.raises(FlywheelError, match=r"`environments\.search\.corpus`: there is no folder"):
        SearchEnvironment("search", section).probes()[0].examine()
