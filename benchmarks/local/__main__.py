"""A model directory without a server: steps per second with batches and with prompts that go on from earlier ones.

Trajectories of a random Qwen3-VL in fp32, greedy, `TOKENS` tokens a reply: two tasks, several attempts each, which
begin at the same screen and then see screens of their own. Once with the last screen alone (`policy.history_images`,
the default) and once with five, where a step's prompt goes on from the whole of the last one's until the sixth. All
arms take a step in turn, by the wall; each screen is encoded once in all of them. What is said is compared.
"""

import io
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from benchmarks.shared.report import Bar, finish, options
from models.completion import Completion
from models.policy import Context
from models.random_vlm import build_random
from models.vlm import VlmPolicy
from schemas.config.policy import PolicyConfig
from schemas.observation import Observation, PastStep

SCREEN = (640, 448)
"""280 tokens of Qwen3-VL."""
TOKENS = 16
STEPS, ATTEMPTS = 8, 3
TASKS = ('Click on the "save" button.', 'Click on the "send" button.')
HISTORIES = (1, 5)
MODEL = {
    "hidden": 512, "layers": 4, "heads": 8, "kv_heads": 4, "head_width": 64, "vision_hidden": 128, "vision_layers": 4,
}  # fmt: skip


@dataclass
class Arm:
    """One way to run the model, and what it did."""

    batch: int
    prefix_mb: int
    policy: VlmPolicy
    tokens: list[int] = field(default_factory=list)
    said: list[Completion] = field(default_factory=list)
    seconds: float = 0.0

    def step(self, contexts: Sequence[Context]) -> None:
        """Acts, by the clock."""
        started = time.perf_counter()
        self.said += self.policy.act(contexts)
        self.seconds += time.perf_counter() - started

    def row(self, history: int) -> dict[str, Any]:
        """As it is reported."""
        steps = len(self.said)
        return {
            "history_images": history,
            "batch": self.batch,
            "prefixes": "on" if self.prefix_mb else "off",
            "steps_per_s": steps / self.seconds,
            "tokens_per_step": sum(self.tokens) / steps,
        }


def arm(directory: Path, history: int, batch: int, prefix_mb: int) -> Arm:
    """A policy of its own, which counts the tokens that its language model is given, padding included."""
    config = PolicyConfig(
        backend="transformers", device="cpu", max_new_tokens=TOKENS,
        history_images=history, batch=batch, prefix_mb=prefix_mb,
    )  # fmt: skip
    made = Arm(batch, prefix_mb, VlmPolicy(directory, config))
    network: Any = made.policy.model.model.float()  # type: ignore[attr-defined]
    network.base_model.language_model.register_forward_pre_hook(
        lambda _, __, given: made.tokens.append(given["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    return made


def contexts(steps: int, attempts: int) -> list[list[Context]]:
    """What all trajectories see, step by step; made-up replies, so that all arms see the same."""
    made: list[list[Context]] = [[] for _ in range(steps)]
    for number in range(len(TASKS) * attempts):
        task = number // attempts
        observed = [_screen(task if at == 0 else 100 * number + at) for at in range(steps)]
        turns = [
            PastStep(
                f"I have seen screen {at} and click on what is next.", f"click(start_box='({100 + at},{number})')", one
            )
            for at, one in enumerate(observed)
        ]
        for at in range(steps):
            made[at].append(Context(TASKS[task], tuple(turns[:at]), observed[at], number))
    return made


def _screen(seed: int) -> Observation:
    """Some boxes."""
    draw, image = random.Random(seed), Image.new("RGB", SCREEN, "white")
    for _ in range(8):
        left, top = draw.randint(0, SCREEN[0] - 80), draw.randint(0, SCREEN[1] - 40)
        ImageDraw.Draw(image).rectangle((left, top, left + 80, top + 40), fill=draw.choice(("navy", "red", "gray")))
    out = io.BytesIO()
    image.save(out, "png")
    return Observation(out.getvalue(), *SCREEN, "")


def main() -> int:
    """Prints the table; exit code 1 if a bar is missed."""
    chosen = options(__doc__ or "")
    steps, attempts = (4, 2) if chosen.short else (STEPS, ATTEMPTS)
    asked = contexts(steps, attempts)
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "model"
        build_random("qwen3_vl", [*TASKS] * 8, 0, directory, **MODEL)
        for history in HISTORIES:
            arms = [
                arm(directory, history, batch, mb)
                for batch in (1, len(asked[0]))
                for mb in (0, PolicyConfig().prefix_mb)
            ]
            arm(directory, history, 1, 0).step(asked[0][:1])  # what the library does once is nobody's
            for step in asked:
                for one in arms:
                    one.step(step)
            rows += [one.row(history) for one in arms]
            bars += _bars(history, arms)
    return finish("local", rows, bars, chosen.json)


def _bars(history: int, arms: Sequence[Arm]) -> list[Bar]:
    first, _, plain, ours = arms
    shown = f"history_images {history}"
    alike = [one.token_ids == other.token_ids for one in arms for one, other in zip(one.said, first.said, strict=True)]
    apart = max(
        abs(one - other)
        for made, wanted in zip(ours.said, plain.said, strict=True)
        if made.token_ids == wanted.token_ids
        for one, other in zip(made.logprobs, wanted.logprobs, strict=True)
    )
    return [
        Bar(f"{shown}: prefixes on / off, batches, steps per second", plain.seconds / ours.seconds, 1.0, "higher"),
        Bar(f"{shown}: both / neither, steps per second", first.seconds / ours.seconds, 1.0, "higher"),
        Bar(f"{shown}: replies that are the same in all arms", sum(alike) / len(alike), 1.0, "higher"),
        Bar(f"{shown}: log probabilities apart, at most", apart, 1e-5, "lower"),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
