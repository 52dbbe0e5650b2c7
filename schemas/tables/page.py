"""Define the table `pages`: rendered screens of generated pages with tasks, for pretraining.

A page has a task of one to six steps. A row is one screen of a page: before each action of the solution, and after the
last.
"""

from typing import Literal, get_args

from schemas.table import Float32, Int32, Row, Table, Text, TextList, between, matches, not_null, one_of, unique

PageSplit = Literal["train", "validation", "test"]


class PageScreen(Row):
    """One screen of one page, with everything that the browser knows about it."""

    page_id: Text
    """Id, derived from the generator's version, the seed and the split."""
    step: Int32
    """0 for the first screen; the last screen has no action."""
    split: PageSplit
    """Layouts, widgets, fonts and words that are held out by name occur only in `test`."""
    layout: Text
    """Arrangement of the page, such as `form` or `wizard`."""
    theme: Text
    font: Text
    """Family of the page's text."""
    font_px: Int32
    """Size of the page's text in pixels."""
    widgets: TextList
    """Kinds of widgets on the page, in the page's order."""
    width: Int32
    height: Int32
    sha256: Text
    """Picture, in the table `screenshots`."""
    elements: Text
    """Canonical JSON list of the visible elements, as in `steps`: name, kind, box in [0,1], interactive, value."""
    states: Text
    """Canonical JSON object of states by index in `elements`: `checked`, `selected`, `disabled`, `focused`, `hovered`,
    `expanded` (true or false). The index -1 is the page; its `scroll` is 0 at the top and 1 at the bottom."""
    lines: Text
    """Canonical JSON list of visible lines of text: the text, its box in pixels (left, top, right, bottom), the font's
    size in pixels, and the centre of each character in pixels from the left. Text in fields is included."""
    instruction: Text
    action: Text
    """Canonical JSON of the solution's action at this screen; empty on the last screen."""
    target: Int32
    """Index in `elements` of the element that the action is at; -1 if there is none."""
    change: Text
    """English sentence about the effect of the action; empty on the last screen."""
    reward: Float32 | None
    """Reward by the page, on the last screen; null before."""
    generator: Text
    """Name and version of the generator and of the browser."""


TABLE = Table(
    name="pages",
    row=PageScreen,
    key=("page_id", "step"),
    expectations=(
        unique(("page_id", "step")),
        *not_null("elements", "states", "lines", because="a screen without elements has an empty list, not null"),
        *not_null("instruction", because="a page without an instruction has no task"),
        matches("sha256", r"^[0-9a-f]{64}$", because="screenshots are found by their sha256"),
        one_of("split", get_args(PageSplit), because="held-out layouts, widgets, fonts and words occur only in `test`"),
        between("step", 0, 12, because="a solution has few actions"),
        between("font_px", 9, 24, because="the generator draws text of 9 to 24 pixels"),
        between("width", 160, 1280, because="the generator draws screens of 160x210 to 1280x800 pixels"),
        between("height", 210, 800, because="the generator draws screens of 160x210 to 1280x800 pixels"),
        between("target", -1, None, because="a target is an index in the elements, or -1"),
        between("reward", 1.0, 1.0, because="only pages whose solution the page rewards are stored"),
    ),
)
