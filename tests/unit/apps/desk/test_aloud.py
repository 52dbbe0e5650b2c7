"""Think-aloud: notes and sound become drafts by step, and what is kept of them is a thought of the person's."""

import io
import sys
import wave
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from apps.desk.app import make_app
from apps.desk.speech import RATE, Recognizer, recognizer, sound_of
from curation.aloud import Phrase
from schemas.config import config_of
from schemas.failure import FlywheelError, UsageError
from tests.unit.apps.conftest import Place

WAV = {"content-type": "audio/wav"}


class Counts(Recognizer):
    """Hears how long it was listening."""

    def listen(self, pcm: bytes) -> list[Phrase]:
        return [Phrase(0.0, f"{len(pcm) // 2} samples")]


def tone(seconds: float, rate: int = RATE, channels: int = 1, width: int = 2) -> bytes:
    wanted = (np.sin(np.arange(int(seconds * rate)) / rate * 2 * np.pi * 440) * 9000).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(channels)
        made.setsampwidth(width)
        made.setframerate(rate)
        made.writeframes(np.repeat(wanted, channels).tobytes() if width == 2 else bytes(len(wanted) * channels))
    return file.getvalue()


def with_rate(rate: int) -> bytes:
    """A tone whose header has that it is of this rate."""
    whole = tone(0.1)
    return whole[:24] + rate.to_bytes(4, "little") + whole[28:]


@pytest.fixture
def client(fresh: Place) -> Iterator[TestClient]:
    fields = fresh.config.model_dump() | {"desk": {"speech": f"{__name__}:Counts"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, __name__, sys.modules[__name__])
        with TestClient(make_app(config_of(fields), fresh.lake), "http://127.0.0.1:8750") as client:
            yield client


def test_notes_are_put_to_steps_and_kept_as_thoughts_that_can_be_undone(client: TestClient, fresh: Place) -> None:
    name = client.get("/api/queue").json()[0]["trajectory_id"]
    assert "think" in client.get(f"/aloud/{name}").text.lower()
    put = client.post(f"/api/trajectories/{name}/aloud/notes", json={"notes": "0:00 the blue one"}).json()
    assert put["steps"] == [{"step": 0, "thought": "the blue one"}]
    kept: dict[str, Any] = {
        "trajectory_id": name,
        "revision": 0,
        "person": "ada",
        "decision": "note",
        **put["steps"][0],
    }
    written = client.post("/api/reviews", json=kept).json()
    (row,) = fresh.lake.read("annotations").to_pylist()
    assert (row["kind"], row["author"], row["thought"], row["step"]) == ("thought", "ada", "the blue one", 0)
    assert client.get("/api/queue").json()[0]["trajectory_id"] == name  # a note decides nothing
    undo = {**kept, "revision": 1, "decision": "undo", "step": None, "thought": None, "undoes": written["review_id"]}
    assert client.post("/api/reviews", json=undo).status_code == 201
    assert fresh.lake.count("annotations") == 0


def test_sound_of_any_rate_is_heard_by_the_recognizer_that_the_config_names(client: TestClient) -> None:
    name = client.get("/api/queue").json()[0]["trajectory_id"]
    for data in (tone(0.5), tone(0.5, 44_100, 2), tone(0.5, 8000)):
        put = client.post(f"/api/trajectories/{name}/aloud/sound", content=data, headers=WAV).json()
        assert put["steps"] == [{"step": 0, "thought": "8000 samples"}]


@pytest.mark.parametrize("data", [b"", b"RIFF", b"\x89PNG not a sound", tone(0.1, width=1), tone(0.1)[:20]])
def test_what_is_no_sound_is_refused_by_name_and_nothing_is_kept(client: TestClient, fresh: Place, data: bytes) -> None:
    name = client.get("/api/queue").json()[0]["trajectory_id"]
    refused = client.post(f"/api/trajectories/{name}/aloud/sound", content=data, headers=WAV)
    assert refused.status_code == 422 and "`audio`" in refused.json()["error"]
    bad = client.post(f"/api/trajectories/{name}/aloud/notes", json={"notes": "no time"})
    assert bad.status_code == 422 and "`notes`: line 1" in bad.json()["error"]
    assert fresh.lake.count("reviews") == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (with_rate(0xFFFFFFFF), "4,294,967,295 samples a second"),
        (with_rate(7_990_271), "8,000 to 192,000"),
        (with_rate(7_999), "7,999 samples"),
        (with_rate(0), "0 samples"),
        (b"", "cut short"),
        (tone(0.1)[:-2], "cut short"),
        (tone(0.1)[:-1], "cut short"),
    ],
)
def test_what_a_wav_header_says_is_not_trusted(data: bytes, said: str) -> None:
    with pytest.raises(UsageError, match="`audio`") as refused:
        sound_of(data)
    assert said in str(refused.value)


def test_sound_of_a_rate_that_shares_nothing_with_the_recognizer_s_is_taken() -> None:
    assert len(sound_of(tone(0.1, 191_999))) == len(sound_of(tone(0.1, 192_000))) == 2 * RATE // 10


def test_a_recognizer_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    recognizer.cache_clear()
    with pytest.raises(FlywheelError, match=r"flywheel\[speech\]"):
        recognizer("pocketsphinx")
    with pytest.raises(UsageError, match=r"desk\.speech"):
        recognizer("nothing")


def test_pocketsphinx_listens_offline_and_hears_nothing_in_a_silence() -> None:
    pytest.importorskip("pocketsphinx")
    recognizer.cache_clear()
    assert recognizer("pocketsphinx").listen(sound_of(tone(0.0) + bytes(0))) == []
    assert recognizer("pocketsphinx").listen(bytes(2 * RATE)) == []
