"""Find the trajectories of a table that hold a text.

A file of a Delta table never changes, so its texts are read and decoded once, and then kept in memory. Only a new file
is read later. A search of 1,500,000 texts takes about 60 ms.
"""

import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from storage.filters import expression
from storage.table import StoredTable

MAX_BYTES = 512 << 20
"""Maximum size of the texts that are kept for a lake. The texts of further files are read at each search."""
_THREADS = 4
_RECORDED = "[instruction, failure_reason]"
_STEP = """[thought, action_error] || list_transform(actions, lambda action:
    if(json_valid(action), array_to_string(json_extract_string(action, '$..*'), chr(31)), action))"""
"""The values of an action as they were typed; lists and objects as JSON. Stored actions also have names of fields, and
escape characters. A control character is between the values, so that no text is found across two of them."""
TEXTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "trajectories": (("instruction", "failure_reason"), _RECORDED),
    "evaluation_trajectories": (("instruction", "failure_reason"), _RECORDED),
    "steps": (("thought", "action_error", "actions"), _STEP),
    "evaluation_steps": (("thought", "action_error", "actions"), _STEP),
    "verdicts": (("reason",), "[reason]"),
}
"""For each table with texts: the columns that have them, and a DuckDB expression that lists the texts of a row."""


@dataclass(frozen=True, slots=True)
class _FileTexts:
    """Texts of one data file."""

    texts: pa.LargeStringArray
    """Each text once."""
    places: pa.Int32Array
    """For each row and text: the text's place in `texts`."""
    trajectories: pa.DictionaryArray
    """For each row and text: the trajectory."""

    @property
    def nbytes(self) -> int:
        return self.texts.nbytes + self.places.nbytes + self.trajectories.nbytes

    def find(self, text: str) -> pa.Array:
        """Return the ids of the trajectories with a text that contains `text`, in any case."""
        matching = pc.MatchSubstringOptions(text, ignore_case=True)
        found = pc.call_function("match_substring", [self.texts], matching).take(self.places)
        return self.trajectories.dictionary.take(self.trajectories.indices.filter(found).unique())


class TextIndex:
    """Texts of one lake's tables, by data file. Threads can share an instance.

    Args:
        max_bytes: maximum size of the texts that are kept.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes, self._lock = max_bytes, threading.Lock()
        self._kept: dict[str, dict[str, _FileTexts]] = {}
        """Texts by table and file."""

    @property
    def nbytes(self) -> int:
        """Size of the texts that are kept."""
        return sum(one.nbytes for files in self._kept.values() for one in files.values())

    def find(self, stored: StoredTable, text: str, iteration: int | None = None) -> pa.ChunkedArray:
        """Return the ids of the trajectories with a text in a table that contains `text`, in any case.

        Args:
            stored: a table of `TEXTS`; its latest version is searched.
            text: the text, of at least one character.
            iteration: search only the rows of this iteration.
        """
        files = self._files(stored, iteration)
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            found = list(pool.map(lambda one: one.find(text), files))
        return pa.chunked_array(found, pa.string())

    def _files(self, stored: StoredTable, iteration: int | None) -> list[_FileTexts]:
        """Return the texts of the latest version's files. Keep those that fit, and drop those of removed files."""
        within = "" if iteration is None else f"iteration={iteration}/"
        name = stored.contract.name
        with self._lock:
            names = stored.names()
            kept = {file: texts for file, texts in self._kept.get(name, {}).items() if file in names}
            self._kept[name] = kept
            wanted = {file for file in names if file.startswith(within)}
            if wanted <= kept.keys():
                return [kept[file] for file in wanted]
            where = None if iteration is None else {"iteration": iteration}
            return stored.read(None, lambda there: self._read(name, there, expression(where)), where)

    def _read(self, name: str, version: pads.Dataset, condition: pads.Expression | None) -> list[_FileTexts]:
        kept, found = self._kept[name], list[_FileTexts]()
        columns, texts = TEXTS[name]
        with duckdb.connect(config={"threads": min(_THREADS, os.cpu_count() or 1)}) as connection:
            for fragment in version.get_fragments(condition):
                file = getattr(fragment, "path", "")
                if file not in kept:
                    rows = fragment.to_table(schema=version.schema, columns=["trajectory_id", *columns])
                    one = _decoded(connection, rows, texts)
                    if self.nbytes + one.nbytes > self._max_bytes:
                        found.append(one)
                        continue
                    kept[file] = one
                found.append(kept[file])
        return found


def _decoded(connection: duckdb.DuckDBPyConnection, rows: pa.Table, texts: str) -> _FileTexts:
    connection.register("given", rows)
    listed = f"SELECT trajectory_id, unnest({texts}) AS text FROM given"
    pairs = connection.sql(f"SELECT * FROM ({listed}) WHERE text IS NOT NULL").to_arrow_table()
    encoded = [pairs["trajectory_id"].cast(pa.string()), pairs["text"].cast(pa.large_string())]
    trajectories, held = (column.dictionary_encode().combine_chunks() for column in encoded)
    return _FileTexts(held.dictionary, held.indices, trajectories)
