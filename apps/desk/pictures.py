"""Serve screenshots by their hash: of this lake only, cached in memory while they are viewed."""

import hashlib
import re
import threading
from collections import OrderedDict

from storage.catalog import ask
from storage.lake import Lake

DIGEST = re.compile(r"[0-9a-f]{64}")
KEPT_BYTES = 64 << 20


class DeskPictures:
    """The lake's screenshots; safe to share between threads."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._lock = lake, threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._held: dict[str, dict[str, bytes]] = {}

    def png(self, digest: str, iteration: int | None = None) -> bytes | None:
        """Reads a screenshot; None if the lake has none with this hash.

        Args:
            digest: sha256 of its bytes, in hex.
            iteration: the iteration to search first.
        """
        if not DIGEST.fullmatch(digest):
            return None
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
                return self._kept[digest]
            held = next((pngs[digest] for pngs in self._held.values() if digest in pngs), None)
        if held is not None:
            return held
        found = self._read(digest, iteration) if iteration is not None else None
        png = found if found is not None else self._read(digest, None)
        if png is not None:
            self._keep(digest, png)
        return png

    def hold(self, session: str, digest: str, png: bytes) -> None:
        """Serves a live session's current screenshot, which is not in the lake yet."""
        with self._lock:
            self._held.setdefault(session, {})[digest] = png

    def release(self, session: str) -> None:
        """Removes a session's screenshots."""
        with self._lock:
            self._held.pop(session, None)

    def _keep(self, digest: str, png: bytes) -> None:
        with self._lock:
            if digest in self._kept:
                return
            self._kept[digest] = png
            self._bytes += len(png)
            while self._bytes > KEPT_BYTES and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1])

    def _read(self, digest: str, iteration: int | None) -> bytes | None:
        rows = ask(self._lake, "screenshot", sha256=digest, iteration=iteration).to_pylist()
        return rows[0]["png"] if rows else None


def digest_of(png: bytes) -> str:
    """Returns the name of a screenshot."""
    return hashlib.sha256(png).hexdigest()
