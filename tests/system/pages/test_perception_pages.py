"""Perception data of real MiniWoB++ pages is true of their pictures, held against what is independent of the element
list: a count of the document's own controls, and a recogniser of text that sees nothing but pixels."""

import asyncio
import hashlib
import re
from collections import Counter
from typing import Any

import pytest

from curation.perception.caption import captions
from curation.perception.perceive import descriptions, marks, questions
from curation.perception.screen import Perceived, RecognisedScreen, WordRecall, agreement, words
from environments.pool import SandboxPool
from models.explorer import PageExplorer
from models.policy import Context
from models.readers import RapidReader
from schemas.observation import PastStep
from tests.parts import miniwob

PAGES = miniwob(pages=1)
TEMPLATES = (
    "click-button",
    "click-dialog-2",
    "click-widget",
    "click-checkboxes",
    "enter-text",
    "login-user",
    "click-tab",
)
STEPS = 2
LEAST_RECALL, LEAST_PRECISION = 0.85, 0.85
COUNT = """(() => {
  const seen = (node) => {
    const box = node.getBoundingClientRect(), style = world.getComputedStyle(node);
    return box.width >= 1 && box.height >= 1 && box.top < 210 && box.bottom > 50 && box.left < 160 && box.right > 0
      && style.visibility === "visible" && style.display !== "none" && Number(style.opacity) > 0;
  };
  const count = (selector) => [...world.document.querySelectorAll(selector)].filter(seen).length;
  return [count("button, input[type=button], input[type=submit]"), count("input[type=text], input:not([type])"),
    count("input[type=checkbox]"), count("input[type=radio]")];
})()"""
COUNTED = ("buttons", "text fields", "checkboxes", "radio buttons")


async def look() -> list[tuple[RecognisedScreen, dict[str, int]]]:
    found: dict[str, tuple[RecognisedScreen, dict[str, int]]] = {}
    async with SandboxPool([PAGES]) as pool:
        for template in TEMPLATES:
            async with pool.lease(PAGES.task(template), 5) as sandbox:
                turns: tuple[PastStep, ...] = ()
                for _ in range(STEPS):
                    seen = await sandbox.observe(elements=True)
                    box: Any = sandbox
                    counts: dict[str, int] = dict(zip(COUNTED, await box._page.evaluate(COUNT), strict=True))
                    digest = hashlib.sha256(seen.png).hexdigest()
                    found[digest] = (
                        RecognisedScreen(digest, seen.width, seen.height, seen.elements, "page", seen.png),
                        counts,
                    )
                    reply = PageExplorer().act([Context(seen.instruction, turns, seen, 5)])[0]
                    assert reply.first is not None
                    await sandbox.perform(reply.first)
                    turns = (*turns, PastStep("", reply.action_text, seen))
    return list(found.values())


@pytest.fixture(scope="module")
def screens() -> list[tuple[RecognisedScreen, dict[str, int]]]:
    return asyncio.run(look())


def told(screen: RecognisedScreen) -> list[Perceived]:
    return [one for make in (descriptions, captions, questions, marks) for one in make(screen, 9)]


@pytest.mark.nightly
def test_counts_are_those_of_the_document(screens: list[tuple[RecognisedScreen, dict[str, int]]]) -> None:
    asked: Counter[str] = Counter()
    for screen, counts in screens:
        for one in questions(screen, 40):
            named = re.fullmatch(r"(?:How many|Count the) (.+?)(?: are there\?|\.)", one.question)
            if named:
                asked[named[1]] += 1
                assert one.answer == f"{counts[named[1]]}.", (one, counts)
    assert asked["buttons"] > 5 and asked["checkboxes"] and asked["radio buttons"] and asked["text fields"]


@pytest.mark.nightly
def test_names_that_are_told_can_be_read_on_the_picture_and_what_is_read_is_what_the_page_knows(
    screens: list[tuple[RecognisedScreen, dict[str, int]]],
) -> None:
    reader, whole = RapidReader(), WordRecall()
    quoted = seen = 0
    for screen, _ in screens:
        lines = reader.read(screen.png)
        whole += agreement(screen, lines)
        there = words(" ".join(line.name for line in lines))
        for one in told(screen):
            if one.answer in ("No.", "Nothing."):
                continue
            said = words(" ".join(re.findall(r'"([^"]*)"', f"{one.question} {one.answer}")))
            quoted += len(said)
            seen += sum(word in there for word in said)
    assert whole.recall >= LEAST_RECALL and whole.precision >= LEAST_PRECISION, whole
    assert quoted > 80 and seen / quoted >= LEAST_RECALL
