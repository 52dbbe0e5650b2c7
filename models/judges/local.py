"""Judges with a small network that is trained on verified trajectories and runs in this process.

The network has 1.3 million weights, which read a point, the screens and the words. Its reader maps the pixels around a
point and names into the same space, so that the element at the point can be compared with the instruction. Names are
read by their parts, so that this also works for names that training did not have.

A case has pixels, words and actions only. Data that only a page or a verifier has is left out. The area around the last
action's point is read at full resolution, before and after the action. Three whole screens are read coarsely: the
oldest, the screen before the last action, and the last.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import load
from torch import Tensor, nn

from common.picture import rgb_of
from models.judges.judge import Judge, JudgeCase, Judgement
from schemas.config.section import Section
from schemas.failure import FlywheelError

WIDTH = 96
PART = 64
"""Width of a part of a name."""
SHADE = 60.0
"""Grey levels per unit, white is 0."""
SPOT = 0.04
"""Radius of the mark of the last point on the canvas, in fractions of its rows."""
Batch = Mapping[str, Tensor]


class PointNetwork(nn.Module):
    """Maps pixels around a point, and names, to unit vectors of one space, and recognises the kind of element."""

    def __init__(self, kinds: int) -> None:
        super().__init__()
        rows, columns = (size // 8 for size in CROP)
        self.look = nn.Sequential(
            nn.Conv2d(1, 24, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * rows * columns, 2 * WIDTH), nn.ReLU(),
        )  # fmt: skip
        self.place = nn.Linear(2 * WIDTH, WIDTH)
        self.kind = nn.Linear(2 * WIDTH, kinds)
        self.parts = nn.Embedding(BUCKETS, PART, padding_idx=0)
        self.name = nn.Sequential(nn.Linear(PART, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
        self.sharpness = nn.Parameter(torch.tensor(2.5))

    def seen(self, crops: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps grey levels (B, *CROP) to features (B, 2 * WIDTH), unit vectors (B, WIDTH) and kind logits."""
        found = self.look(shade(crops)[:, None])
        return found, F.normalize(self.place(found), dim=-1), self.kind(found)

    def named(self, grams: Tensor) -> Tensor:
        """Maps (..., GRAMS) parts to unit vectors (..., WIDTH); an empty name is 0."""
        there = (grams > 0).sum(-1, keepdim=True)
        mean = self.parts(grams).sum(-2) / there.clamp(min=1) ** 0.5
        return F.normalize(self.name(mean), dim=-1) * (there > 0)

    def match(self, seen: Tensor, named: Tensor) -> Tensor:
        """Computes logits (B, N) of (B, WIDTH) against (N, WIDTH)."""
        return seen @ named.T * self.sharpness.exp()


class JudgeNet(nn.Module):
    """Computes the logit that a case is a success.

    Args:
        kinds: the names of the kinds of elements that the reader distinguishes; may be empty.
        numbers: how many numbers a case has.
    """

    kinds: Tensor
    """(n, GRAMS) the names of the kinds."""

    def __init__(self, kinds: Sequence[str], numbers: int) -> None:
        super().__init__()
        self.reader = PointNetwork(len(kinds))
        self.register_buffer("kinds", torch.from_numpy(np.stack([grams_of(kind) for kind in kinds])))
        cells = -(-CANVAS[0] // 16) * -(-CANVAS[1] // 16)
        self.whole = nn.Sequential(
            nn.Conv2d(4, 16, 5, 2, 2), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(48, 48, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(48 * cells, WIDTH), nn.ReLU(),
        )  # fmt: skip
        self.facts = nn.Sequential(nn.Linear(numbers, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.order = nn.GRU(WIDTH, WIDTH, batch_first=True)
        near = 2 * (2 * WIDTH + len(kinds))
        self.near = nn.Sequential(nn.Linear(near, WIDTH), nn.ReLU())
        self.by_text = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.end = nn.Sequential(
            nn.Dropout(0.2), nn.Linear(7 * WIDTH + MATCHES, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 1)
        )

    def forward(self, batch: Batch) -> Tensor:
        """Computes logits (B,)."""
        words = self.reader.named(batch["words"])
        text = self._text(words, batch["words"])
        before, read, kind = self.reader.seen(batch["crops"][:, 0])
        after, read_after, kind_after = self.reader.seen(batch["crops"][:, 1])
        near = self.near(torch.cat([before, kind.softmax(-1), after, kind_after.softmax(-1)], -1))
        screens = torch.cat([shade(batch["screens"]), _spot(batch["point"])[:, None]], 1)
        parts = [near, self.whole(screens), self.facts(batch["numbers"])]
        bound = [part * gate(text) for part, gate in zip(parts, self.by_text, strict=True)]
        phrase = self.reader.named(batch["phrase"])
        called = kind.softmax(-1) @ self.reader.named(self.kinds)
        matches = torch.cat([_matches(one, words, phrase) for one in (read, read_after, called)], -1)
        return self.end(torch.cat([*parts, *bound, text, matches], -1)).squeeze(-1)

    def _text(self, words: Tensor, grams: Tensor) -> Tensor:
        """Encodes the instruction, (B, WIDTH): the state at its last word."""
        last = (grams[..., 0] > 0).sum(1).clamp(min=1) - 1
        return self.order(words * words.shape[-1] ** 0.5)[0][torch.arange(len(words)), last]


MATCHES = 3 * 3


def _matches(seen: Tensor, words: Tensor, phrase: Tensor) -> Tensor:
    """Compares features of crops with the quoted phrase and with the two best words; (B, 3)."""
    alike = (words @ seen[:, :, None]).squeeze(-1)
    best = alike.topk(2, dim=1).values
    return 4 * torch.stack([(seen * phrase).sum(-1), best[:, 0], best[:, 1]], -1)


def shade(grey: Tensor) -> Tensor:
    """Scales grey levels for the network."""
    return (grey.float() - 255) / SHADE


def _spot(point: Tensor) -> Tensor:
    """Draws a mark at a point of the canvas, (B, *CANVAS)."""
    rows, columns = CANVAS
    down = (torch.arange(rows) + 0.5)[None, :, None] / rows - point[:, 1, None, None]
    right = ((torch.arange(columns) + 0.5)[None, None] / columns - point[:, 0, None, None]) * (columns / rows)
    return 3 * torch.exp(-(down**2 + right**2) / (2 * SPOT**2))


def reading_loss(reader: PointNetwork, crops: Tensor, names: Tensor, which: Tensor, kinds: Tensor) -> Tensor:
    """Computes the contrastive loss of crops (B, *CROP) against different names (N, GRAMS), plus that of their kinds.

    Args:
        reader: the network that learns to read.
        crops: pixels around points.
        names: the different names among them.
        which: (B,) the name of each crop; -1 for an element without one.
        kinds: (B,) the kind of each.
    """
    _, seen, kind = reader.seen(crops)
    loss = F.cross_entropy(kind, kinds)
    with_name = which >= 0
    if with_name.any():
        loss = loss + F.cross_entropy(reader.match(seen[with_name], reader.named(names)), which[with_name])
    return loss


def numbered(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Converts arrays of `features.stacked` to tensors."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


CROP = (32, 80)
"""Rows and columns of the crop around a point, in pixels of the screen."""
CANVAS = (112, 88)
"""Rows and columns on which a whole screen is laid, scaled by at most a half."""
WORDS, GRAMS, BUCKETS = 24, 48, 4096
"""Maximum words of an instruction, maximum parts of a word, and number of hash buckets for parts."""
LONGEST = 24
"""Maximum characters of a name that are read."""
TYPES = ("click", "left_double", "right_single", "drag", "scroll", "type", "hotkey", "wait", "finished")
RECENT = 3
"""Number of last actions that are encoded one by one."""
WAVES = 6
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Features:
    """Arrays of one case."""

    crops: Array
    """(2, *CROP) uint8: around the last point, before and after the last action, grey."""
    screens: Array
    """(3, *CANVAS) uint8: the oldest screen, the screen before the last action, and the last screen; grey."""
    point: Array
    """(2,) float32: the last point in fractions of the canvas; -1 if no action has a point."""
    words: Array
    """(WORDS, GRAMS) int64: the parts of the instruction's words; 0 for no part."""
    phrase: Array
    """(GRAMS,) int64: the parts of the instruction's quoted text."""
    numbers: Array
    """(n,) float32: actions, counts, and the typed parts of the instruction."""


def features_of(case: JudgeCase) -> Features:
    """Computes the arrays of a case."""
    actions = [_parsed(action) for action in case.actions]
    screens = [grey_of(png) for png in case.screens] or [np.full(CANVAS, 255, np.uint8)]
    before, after = screens[-2:][0], screens[-1]
    x, y, pointed = _point(actions)
    crops = np.stack([crop_of(before, x, y), crop_of(after, x, y)]) if pointed else np.full((2, *CROP), 255, np.uint8)
    canvases = [canvas_of(screen) for screen in (screens[0], before, after)]
    height, width = before.shape
    scale = scale_of(before)
    place = (x * width * scale / CANVAS[1], y * height * scale / CANVAS[0]) if pointed else (-1.0, -1.0)
    return Features(
        crops=crops,
        screens=np.stack(canvases),
        point=np.array(place, np.float32),
        words=np.stack([grams_of(word) for word in words_of(case.instruction)]),
        phrase=grams_of(" ".join(_quoted(case.instruction))),
        numbers=np.array(_numbers(case, actions, (x, y), np.array_equal(before, after)), np.float32),
    )


def stacked(features: Sequence[Features]) -> dict[str, Array]:
    """Stacks several cases, array by array, for `network.JudgeNet`."""
    names = ("crops", "screens", "point", "words", "phrase", "numbers")
    return {name: np.stack([getattr(one, name) for one in features]) for name in names}


@lru_cache(maxsize=64)
def grey_of(png: bytes) -> Array:
    """Decodes a screen in grey, (rows, columns) uint8; white if the bytes are no picture."""
    try:
        return np.asarray(rgb_of(png).convert("L"))
    except (OSError, ValueError):
        return np.full(CANVAS, 255, np.uint8)


def crop_of(screen: Array, x: float, y: float) -> Array:
    """Crops the screen around a point in fractions of the screen; white outside of the screen."""
    rows, columns = CROP
    top, left = round(y * screen.shape[0]) - rows // 2, round(x * screen.shape[1]) - columns // 2
    crop = np.full(CROP, 255, np.uint8)
    seen = screen[max(top, 0) : max(top + rows, 0), max(left, 0) : max(left + columns, 0)]
    down, right = max(-top, 0), max(-left, 0)
    crop[down : down + seen.shape[0], right : right + seen.shape[1]] = seen
    return crop


def scale_of(screen: Array) -> float:
    """Computes the factor by which a screen is reduced to fit the canvas."""
    return min(0.5, CANVAS[0] / screen.shape[0], CANVAS[1] / screen.shape[1])


def canvas_of(screen: Array) -> Array:
    """Lays the reduced screen in the canvas's upper left corner."""
    scale = scale_of(screen)
    rows, columns = (max(1, min(most, int(scale * size))) for size, most in zip(screen.shape, CANVAS, strict=True))
    canvas = np.full(CANVAS, 255, np.uint8)
    canvas[:rows, :columns] = np.asarray(Image.fromarray(screen).resize((columns, rows), Image.Resampling.BOX))
    return canvas


def words_of(instruction: str) -> list[str]:
    """Lists the instruction's first words and signs, padded with empty words."""
    found = re.findall(r"-?\d+\w*|\w+|[^\w\s]", instruction.lower())[:WORDS]
    return found + [""] * (WORDS - len(found))


def grams_of(name: str) -> Array:
    """Hashes a name's parts of one to three characters, with marked ends; (GRAMS,) int64, 0 for no part."""
    marked = f"^{' '.join(name.lower().split())[:LONGEST]}$" if name.strip() else ""
    grams = [marked[at : at + size] for size in (3, 2, 1) for at in range(len(marked) - size + 1)]
    ids = [_bucket(gram) for gram in dict.fromkeys(grams)][:GRAMS]
    return np.array(ids + [0] * (GRAMS - len(ids)), np.int64)


@lru_cache(maxsize=65536)
def _bucket(gram: str) -> int:
    return 1 + int.from_bytes(hashlib.md5(gram.encode(), usedforsecurity=False).digest()[:4], "big") % (BUCKETS - 1)


def _quoted(instruction: str) -> list[str]:
    return re.findall(r'"([^"]+)"', instruction)


def _parsed(action: str | None) -> dict[str, Any]:
    return json.loads(action) if action else {}


def _point(actions: Sequence[dict[str, Any]]) -> tuple[float, float, bool]:
    for action in reversed(actions):
        if "x" in action:
            return action["x"], action["y"], True
    return 0.5, 0.5, False


def _numbers(case: JudgeCase, actions: Sequence[dict[str, Any]], at: tuple[float, float], still: bool) -> list[float]:
    recent: list[dict[str, Any]] = ([{}] * RECENT + list(actions))[-RECENT:]
    typed = [str(action["content"]) for action in actions if "content" in action]
    quoted = _quoted(case.instruction)
    asked = [*(int(found[:9]) for found in re.findall(r"-?\d+", case.instruction)), 0, 0]
    facts = [
        min(len(actions), 8) / 8,
        min(len(typed), 4) / 4,
        quoted != [],
        any(word == text for word in quoted for text in typed),
        any(word in text for word in quoted for text in typed),
        still,
        *at,
        *(max(-9, min(9, number)) / 5 for number in asked[:2]),
        *(float(word in case.instruction.lower().split()) for word in ("larger", "smaller", "height", "width")),
    ]
    return [float(one) for one in (*facts, *_waves(at), *(n for action in recent for n in _action(action)))]


def _action(action: dict[str, Any]) -> Iterable[float]:
    yield from (float(action.get("type") == kind) for kind in TYPES)
    yield from (float(action.get("direction") == way) for way in ("up", "down"))
    start, end = (action.get("x", 0.0), action.get("y", 0.0)), (action.get("to_x", 0.0), action.get("to_y", 0.0))
    yield from (*start, *end)
    yield from ((end[0] - start[0]) * 3, (end[1] - start[1]) * 3) if "to_x" in action else (0.0, 0.0)


def _waves(place: tuple[float, float]) -> Iterable[float]:
    """Yields sines and cosines of a point's coordinates, so that a small network can distinguish nearby points."""
    for axis in place:
        for wave in range(WAVES):
            yield float(np.sin(np.pi * 2 ** (wave / 1.5) * axis))
            yield float(np.cos(np.pi * 2 ** (wave / 1.5) * axis))


CONFIG, WEIGHTS = "judge.json", "model.safetensors"
TOGETHER = 64


class LocalConfig(BaseModel):
    """Config file in the folder of the weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: list[str]
    """Kinds of elements that the judge's network distinguishes."""
    numbers: int
    """Length of `Features.numbers`."""
    scale: float
    shift: float
    """Calibration: the probability is sigmoid(scale * logit + shift) (Platt, 1999), fitted on validation
    trajectories."""
    threshold: float
    """Score with the best F1 on validation trajectories."""
    learned: list[str]
    """Tasks and seeds on which the judge was trained or calibrated, as `task_id seed`."""


class LocalOptions(Section):
    """`judge.options` of `judge.kind=local`."""

    checkpoint: str = Field(min_length=1)
    """Folder of a judge from `flywheel judge --train`."""


class LocalJudge(Judge[LocalOptions]):
    """Sees the last screens, the instruction and the actions, as any judge does, and never the page."""

    section = LocalOptions
    reached = frozenset({"checkpoint"})  # the name has the hash of its files

    def __init__(self, options: LocalOptions, tries: int = 1) -> None:
        super().__init__(options, tries)
        config, weights = _read(Path(options.checkpoint).expanduser())
        self.name = f"local-{hashlib.sha256(config + weights).hexdigest()[:12]}"
        try:
            self.config = LocalConfig.model_validate_json(config)
            self._net = JudgeNet(self.config.kinds, self.config.numbers)
            self._net.load_state_dict(load(weights))
        except (ValidationError, RuntimeError, ValueError) as error:
            problem = f"`judge.options.checkpoint`: {options.checkpoint} holds no judge: {str(error).splitlines()[0]}."
            raise FlywheelError(problem, "Train one with `flywheel judge --train NAME`.") from error
        self._net.eval()
        self._learned = set(self.config.learned)

    def knows(self, task_id: str, seed: int) -> bool:
        """Checks whether the judge learned from this task and seed."""
        return page_of(task_id, seed) in self._learned

    def _judge(self, cases: Sequence[JudgeCase]) -> list[Judgement]:
        scores: list[float] = []
        for at in range(0, len(cases), TOGETHER):
            batch = numbered(stacked([features_of(case) for case in cases[at : at + TOGETHER]]))
            with torch.inference_mode():
                logits = self._net(batch)
            scores += torch.sigmoid(self.config.scale * logits + self.config.shift).tolist()
        return [Judgement(score, f"{score:.2f} by instruction, actions and screens") for score in scores]

    def _score(self, case: JudgeCase) -> Judgement:
        return self._judge([case])[0]


def page_of(task_id: str, seed: int) -> str:
    """Names a task with a seed in the form of `learned`."""
    return f"{task_id} {seed}"


def _read(folder: Path) -> tuple[bytes, bytes]:
    try:
        return (folder / CONFIG).read_bytes(), (folder / WEIGHTS).read_bytes()
    except OSError as error:
        raise FlywheelError(
            f"`judge.options.checkpoint`: {folder} holds no judge: {error.strerror}.",
            "Train one with `flywheel judge --train NAME`, which prints its folder.",
        ) from error
