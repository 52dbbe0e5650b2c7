"""Define the interface for speech recognition: 16-bit mono sound in, words with their times out.

`desk.speech` names one: `pocketsphinx`, which needs no network and includes its English model (the extra `speech`), or
`my_package.my_module:MyRecognizer`.
"""

import io
import wave
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np

from curation.aloud import Phrase
from schemas.failure import FlywheelError, UsageError
from schemas.registry import Registry

RATE = 16_000
RATES = (8_000, 192_000)
"""Accepted sample rates of an upload, in Hz, from telephones' to studios'; a header may hold any number."""
LONGEST_S = 1800.0
MODULE = "pocketsphinx"


class Recognizer(ABC):
    """Transcribes speech; made without arguments, and used by one thread at a time."""

    @abstractmethod
    def listen(self, pcm: bytes) -> list[Phrase]:
        """Returns the phrases in 16-bit mono sound of 16,000 samples a second, in order."""


RECOGNIZERS: Registry[Recognizer] = Registry(
    "desk.speech", Recognizer, {"pocketsphinx": "apps.desk.speech:PocketSphinx"}
)


class PocketSphinx(Recognizer):
    """PocketSphinx: offline and fast on a CPU, but inaccurate; its text is a draft for the reviewer."""

    def __init__(self) -> None:
        try:
            self._sphinx: Any = __import__(MODULE)
        except ImportError as error:
            hint = "Install it: pip install 'flywheel[speech]'; or write the notes as text."
            raise FlywheelError("`desk.speech`: pocketsphinx is not installed.", hint) from error
        self._sphinx.set_loglevel("FATAL")
        self._decoder = self._sphinx.Decoder(samprate=RATE)

    def listen(self, pcm: bytes) -> list[Phrase]:
        """Returns the phrases between pauses, by voice activity."""
        phrases: list[Phrase] = []
        for segment in self._sphinx.Segmenter(sample_rate=RATE).segment(io.BytesIO(pcm)):
            self._decoder.start_utt()
            self._decoder.process_raw(segment.pcm, full_utt=True)
            self._decoder.end_utt()
            heard = self._decoder.hyp()
            if heard is not None and heard.hypstr.strip():
                phrases.append(Phrase(round(segment.start_time, 2), heard.hypstr.strip()))
        return phrases


@cache
def recognizer(name: str) -> Recognizer:
    """Returns the recognizer of this name or dotted path; raises UsageError, or FlywheelError if it cannot be
    loaded."""
    return RECOGNIZERS.class_of(name)()


def sound_of(data: bytes) -> bytes:
    """Converts a WAV file to the recognizers' format: mono, 16 bits, 16,000 samples a second.

    Raises:
        UsageError: the data is not a 16-bit WAV file, is truncated, is longer than half an hour, or has a rate outside
            of `RATES`.
    """
    try:
        with wave.open(io.BytesIO(data)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            _require_sound(width, channels, rate, frames := file.getnframes())
            pcm = file.readframes(frames)
    except (wave.Error, EOFError, ValueError) as error:
        why = str(error) or "it is cut short"
        raise UsageError(f"`audio`: this is not a WAV file ({why}).", "Upload PCM WAV.") from error
    if len(pcm) != frames * width * channels:
        raise UsageError(f"`audio`: cut short after {len(pcm):,} bytes of sound.", "Upload all of it.")
    sound = np.frombuffer(pcm, "<i2").reshape(-1, channels).mean(axis=1)
    if rate != RATE:
        from scipy.signal import resample_poly

        common = int(np.gcd(rate, RATE))
        sound = resample_poly(sound, RATE // common, rate // common)
    return np.clip(np.rint(sound), -32768, 32767).astype("<i2").tobytes()


def _require_sound(width: int, channels: int, rate: int, frames: int) -> None:
    """Raises UsageError for invalid header values, before any buffer of that size is read or allocated."""
    if width != 2:
        raise UsageError(f"`audio`: samples of {8 * width} bits.", "Save it as WAV of 16 bits.")
    if not RATES[0] <= rate <= RATES[1]:
        raise UsageError(
            f"`audio`: {rate:,} samples a second, and {RATES[0]:,} to {RATES[1]:,} are taken.", "Save it at 16,000."
        )
    if frames / rate > LONGEST_S:
        raise UsageError(f"`audio`: longer than {LONGEST_S / 60:g} minutes.", "Upload it in parts, with their offsets.")
