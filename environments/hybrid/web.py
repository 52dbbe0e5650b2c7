"""Define the local pages of a hybrid task: their texts, links, downloads and upload forms.

Pages are data instead of HTML, and the workspace's page draws them, so no text of a task or a policy becomes markup.
"""

from collections.abc import Mapping
from dataclasses import dataclass

HOME = "home"
"""The first page."""


@dataclass(frozen=True, slots=True)
class Link:
    """Leads to another page."""

    text: str
    page: str


@dataclass(frozen=True, slots=True)
class Download:
    """Puts a file into the folder `downloads`."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Upload:
    """A form that takes the selected file; a second file replaces the first."""

    form: str


Block = str | Link | Download | Upload | tuple[str, ...]
"""A part of a page: a text, a link, a file to download, a form to upload to, or a row of a table."""


@dataclass(frozen=True, slots=True)
class HybridPage:
    """One page."""

    title: str
    blocks: tuple[Block, ...] = ()


Web = Mapping[str, HybridPage]
"""Pages by their address, `HOME` among them."""
NOTHING: Web = {HOME: HybridPage("Home", ("There are no pages here. The files are on the left.",))}


def address(page: str) -> str:
    """Returns a page's address as the browser shows it."""
    return f"local://{page}"


def page_of(text: str) -> str:
    """Returns the page of a typed address."""
    return text.strip().removeprefix("local://").strip("/") or HOME
