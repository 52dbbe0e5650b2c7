"""Implement the workspace of a hybrid task: files, a browser of local pages, an editor and a terminal over one file
system. This module decides the page's content and the effect of a click; the page itself only draws."""

from dataclasses import asdict
from typing import Any

from environments.hybrid.files import Files, relative
from environments.hybrid.terminal import Ran, TerminalSession
from environments.hybrid.web import HOME, Download, Link, Upload, Web, address, page_of

SHOWN_LINES = 200
LONGEST_LINE = 400
MOST_TEXT = 65_536
"""Maximum bytes of a file that the editor opens."""
DOWNLOADS = "downloads"
View = dict[str, Any]


class Workspace:
    """The state of a workspace and its operations, which return the reason why they had no effect, or None."""

    def __init__(self, files: Files, terminal: TerminalSession, web: Web) -> None:
        self.files, self.terminal, self.web = files, terminal, web
        self.page = HOME
        self.opened: str | None = None
        """The file in the editor."""
        self.uploads: dict[str, bytes] = {}
        """The last upload by form."""
        self._names: dict[str, str] = {}
        self._visited: list[str] = []
        self._tab = "browser"
        self._folder = ""
        self._selected: str | None = None
        self._text, self._version = "", 0
        self._lines: list[str] = []
        self._status = ""

    async def do(self, event: list[str]) -> None:
        """Handles an event of the page; the status line shows why an event had no effect."""
        match event:
            case ["go", page]:
                error = self.go(page)
            case ["address", text]:
                error = self.go(page_of(text))
            case ["back"]:
                error = self.back()
            case ["tab", name]:
                error, self._tab = None, name
            case ["folder", path]:
                error = self._enter(path)
            case ["open", path]:
                error = self.read(path)
            case ["delete", path]:
                error = self._delete(path)
            case ["download", name]:
                error = self._download(name)
            case ["upload", form]:
                error = self._upload(form)
            case ["save", path, text]:
                error = self.write(path, text)
            case ["run", command]:
                error = await self.run(command)
            case _:
                error = f"nothing here does {event[:1]}"
        self._status = error or ""

    async def run(self, command: str) -> str | None:
        """Runs a command in the terminal; raises as `TerminalSession.run` does."""
        before = self.terminal.folder
        self._log(before, command, await self.terminal.run(command))
        return None

    def go(self, page: str) -> str | None:
        """Opens a page."""
        self._tab = "browser"
        if page not in self.web:
            return f"there is no page {address(page)}"[:LONGEST_LINE]
        if page != self.page:
            self._visited.append(self.page)
        self.page = page
        return None

    def back(self) -> str | None:
        """Opens the previous page."""
        self._tab = "browser"
        if not self._visited:
            return "there is no page before this one"
        self.page = self._visited.pop()
        return None

    def read(self, path: str) -> str | None:
        """Opens a file in the editor."""
        self._tab = "editor"
        try:
            place = relative(path)
            self._text = self.files.read(place, MOST_TEXT).decode()
        except (OSError, ValueError) as error:
            return f"{path[:LONGEST_LINE]} cannot be opened: {_why(error)}"
        self._selected = self.opened = place
        self._version += 1
        return None

    def write(self, path: str, text: str) -> str | None:
        """Writes a file and opens it."""
        self._tab = "editor"
        try:
            place = relative(path)
            self.files.write(place, text.encode())
        except (OSError, ValueError) as error:
            return f"{path[:LONGEST_LINE]} cannot be written: {_why(error)}"
        return self.read(path)

    def view(self) -> View:
        """Returns the content of the page."""
        rows: list[View] = []
        try:
            for one in self.files.listed(self._folder):
                path = f"{self._folder}/{one.name}".strip("/")
                rows.append({**asdict(one), "path": path, "selected": path == self._selected})
        except OSError:
            self._folder = ""
        shown = self.web[self.page]
        return {
            "status": self._status,
            "folder": f"/work/{self._folder}".rstrip("/"),
            "above": self._folder.rpartition("/")[0] if self._folder else None,
            "rows": rows,
            "tab": self._tab,
            "address": address(self.page),
            "title": shown.title,
            "blocks": [self._block(block) for block in shown.blocks],
            "editor": {"path": self.opened or "", "text": self._text, "version": self._version},
            "terminal": "\n".join(self._lines[-SHOWN_LINES:]),
            "prompt": f"{self.terminal.folder[-40:]}$",
        }

    def _block(self, block: Any) -> list[str]:
        match block:
            case Link(text, page):
                return ["link", text, page]
            case Download(name, _):
                return ["download", name]
            case Upload(form):
                return ["upload", form, self._selected or "", self._names.get(form, "")]
            case tuple():
                return ["row", *block]
            case _:
                return ["text", str(block)]

    def _enter(self, path: str) -> str | None:
        try:
            self.files.listed(path)
        except OSError as error:
            return f"{path} cannot be opened: {_why(error)}"
        self._folder, self._selected = path, None
        return None

    def _delete(self, path: str) -> str | None:
        try:
            self.files.remove(path)
        except OSError as error:
            return f"{path} cannot be deleted: {_why(error)}"
        self._selected = None if self._selected == path else self._selected
        return None

    def _download(self, name: str) -> str | None:
        found = [one for one in self.web[self.page].blocks if isinstance(one, Download) and one.name == name]
        if not found:
            return f"this page has no file {name}"
        try:
            self.files.write(f"{DOWNLOADS}/{name}", found[0].content)
        except OSError as error:
            return f"{name} cannot be downloaded: {_why(error)}"
        self._folder = DOWNLOADS
        return None

    def _upload(self, form: str) -> str | None:
        if not any(isinstance(one, Upload) and one.form == form for one in self.web[self.page].blocks):
            return f"this page has no form {form}"
        if self._selected is None:
            return "no file is selected: click one on the left"
        try:
            self.uploads[form] = self.files.read(self._selected)
        except (OSError, ValueError) as error:
            return f"{self._selected} cannot be uploaded: {_why(error)}"
        self._names[form] = self._selected
        return None

    def _log(self, folder: str, command: str, ran: Ran) -> None:
        lines = [f"{folder}$ {command}", *ran.output.rstrip("\n").splitlines()[-SHOWN_LINES:]]
        if ran.note or ran.status:
            lines.append(f"[{ran.note or f'exit status {ran.status}'}]")
        self._lines = [*self._lines, *(line[:LONGEST_LINE] for line in lines if line)][-SHOWN_LINES:]


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeError):
        return "it is no text"
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()
