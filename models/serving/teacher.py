"""Scores given replies with a teacher on an SGLang server: the log probabilities of the replies' tokens.

A request sends prompt and reply as token ids, with one token for each picture, and generates nothing. So a score costs
one prefill. Servers of OpenAI's protocol, vLLM among them, take pictures only in chats, which they tokenise themselves.

SGLang up to at least 0.5 decodes the ids of a prompt with pictures and encodes the text again. A sampled reply need not
be the tokens that its text encodes to. So every answer is compared with the tokens that were sent.

An answer has an entry for each token from `logprob_start_len` on, counted with all tokens of the pictures. The first
has no log probability, and tokens of pictures have the id 0.

Source: SGLang, `srt/managers/io_struct.py` (`GenerateReqInput`), `srt/managers/scheduler.py`
(`_process_input_token_logprobs`), `srt/multimodal/processors/base_processor.py`; slime @624b824, `--use-opd`.
"""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from models.families.processor import PromptTokens, read_processor
from models.families.prompt import screen_turn, text_turn
from models.families.registry import family_of
from models.families.screen import picture_png
from models.serving.openai import Endpoint, NoAnswer, OpenAIClient, Rejected, Unknown, require_address
from schemas.config.policy import PolicyConfig
from schemas.config.training import DistillConfig
from schemas.failure import FlywheelError, UsageError
from schemas.observation import Observation

SAMPLE = 'Thought: the menu "Save as…" is at (312, 48).\nnaïve 文件 🙂 {"x": 0.5} 1_000'
"""Text that tokenizers of other models encode differently."""
SIDE = 224
"""Side of the picture that is sent with it, in pixels."""
TAIL = 4
"""Number of its last tokens that are scored."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A prompt, and the reply to score."""

    ids: Sequence[int]
    """Tokens of the prompt and the reply, with one token for each picture."""
    pictures: Sequence[bytes]
    """PNGs in the prompt's order, in the size in which the policy sees them."""
    reply: Sequence[int]
    """Tokens of the reply."""
    length: int
    """Number of tokens of the prompt and the reply, with all tokens of the pictures."""


class Teacher:
    """Scores replies; safe to share between threads.

    Args:
        config: its server.
        transport: carries requests, for tests.

    Raises:
        UsageError: the address or the key cannot be used.
    """

    def __init__(self, config: DistillConfig, transport: httpx.BaseTransport | None = None) -> None:
        require_named(config)
        self._model = config.model
        self._client = OpenAIClient(_endpoint(config), transport)

    def score(self, request: ScoreRequest) -> tuple[float, ...] | None:
        """Returns the log probabilities of the reply's tokens at temperature 1; None if the server read other tokens.

        Raises:
            NoAnswer: the server failed, also after repetitions, or rejects the request.
            FlywheelError: the server refuses the key, has no `/generate`, or gives other numbers than requested.
        """
        count = len(request.reply)
        try:
            found = self._read(request.pictures, request.length - count - 1, input_ids=list(request.ids))
        except Rejected as refusal:
            if "logprob_start_len" in refusal.answer:  # its prompt is shorter than the part before the reply
                return None
            raise
        if found.get("prompt_tokens", request.length) != request.length:
            return None
        entries = _entries(found)
        if len(entries) != count + 1:
            raise FlywheelError(
                f"`train.opd.url`: the teacher gave {len(entries)} log probabilities instead of {count + 1}, those of "
                "a reply's tokens and of the token before.",
                "Serve the teacher with SGLang, without a proxy that changes its answers.",
            )
        if [token for _, token in entries[1:]] != list(request.reply):
            return None
        scores = [value for value, _ in entries[1:]]
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in scores):
            raise FlywheelError(
                "`train.opd.url`: the teacher gave a log probability that is no number.",
                "See the server's log; weights that overflow in fp16 give such values.",
            )
        return tuple(min(float(value), 0.0) for value in scores)

    def require(self, directory: Path, policy: PolicyConfig) -> None:
        """Checks that the teacher answers, and reads text and pictures as the policy of a directory does.

        Raises:
            FlywheelError: it does not answer or has another name, tokenizer or image processor; or its server cannot
                score token ids with pictures.
        """
        self._client.require()
        names = self._client.models()
        if names and self._model not in names:
            raise UsageError(
                f"`train.opd.model` is {self._model!r}, and the server has {', '.join(names)}.",
                "Set it to the name of the teacher on that server.",
            )
        processor, limits = read_processor(directory), family_of(policy, directory).limits
        screen = Observation(_blank(), SIDE, SIDE, "")
        chat = [screen_turn(screen, limits), text_turn("user", SAMPLE)]
        ours = PromptTokens(processor, limits)(chat)
        kinds = processor.create_mm_token_type_ids([ours])[0]
        first, last = kinds.index(1), len(kinds) - kinds[::-1].index(1)
        picture = picture_png(screen.png, limits)
        text = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        try:
            read = [token for _, token in _entries(self._read([picture], 0, text=text))]
            self._require_same(ours, read, first, last, processor.tokenizer)
            ids = [*ours[: first + 1], *ours[last:]]
            scored = self.score(ScoreRequest(ids, [picture], ours[-TAIL:], len(ours)))
        except NoAnswer as error:
            raise FlywheelError(f"`train.opd.url`: {str(error).rstrip('.')}.", "See the server's log.") from None
        if scored is None:
            raise FlywheelError(
                "`train.opd.url`: the server reads token ids with a picture as other tokens than it reads their text.",
                "Update SGLang, and serve the teacher with its own processor.",
            )

    def _require_same(self, ours: list[int], read: list[int], first: int, last: int, tokenizer: Any) -> None:
        """Compares the tokens before and behind the picture, then the number of its tokens.

        The server gives no token ids of pictures. `first` and `last` limit the picture's tokens in `ours`.
        """
        behind = len(ours) - last
        pairs = [*zip(ours[:first], read, strict=False), *zip(ours[-behind:], read[-behind:], strict=False)]
        differing = next(((one, other) for one, other in pairs if one != other), None)
        if differing is not None or len(read) < first + behind:
            one, other = differing or (ours[-1], -1)
            raise FlywheelError(
                f"`train.opd.model`: the tokenizer of {self._model} is not the policy's: it reads a text as "
                f"{len(read)} tokens instead of {len(ours)}, among them token {other} instead of {one} "
                f"({tokenizer.decode([one])!r}).",
                "Set it to a teacher with the policy's tokenizer, such as a larger model of the same release.",
            )
        if len(read) != len(ours):
            raise FlywheelError(
                f"`train.opd.model`: {self._model} reads a picture as {len(read) - first - behind} tokens, and the "
                f"policy as {last - first}.",
                "Serve a teacher with the policy's image processor: the same patches and limits of pixels.",
            )

    def _read(self, pictures: Sequence[bytes], start: int, **prompt: Any) -> dict[str, Any]:
        """Returns the server's data about a prompt, with log probabilities from the token `start` on."""
        body = {
            **prompt,
            "image_data": [f"data:image/png;base64,{base64.b64encode(png).decode()}" for png in pictures],
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": start,
        }
        try:
            return self._client.read(body)["meta_info"]
        except Unknown:
            raise FlywheelError(
                f"`train.opd.url`: the server at {self._client.endpoint.url} has no /generate.",
                "Serve the teacher with SGLang; vLLM scores no token ids with pictures.",
            ) from None


def require_named(config: DistillConfig) -> None:
    """Raises UsageError if the config names no teacher, or its url is no web address."""
    for key in ("url", "model"):
        if not getattr(config, key):
            raise UsageError(
                f"`train.opd.{key}` is empty, and train.method=opd needs a teacher.",
                "Serve the teacher with SGLang, and set train.opd.url and train.opd.model.",
            )
    require_address(_endpoint(config))


def _endpoint(config: DistillConfig) -> Endpoint:
    return Endpoint("train.opd", config.url, config.key_variable, config.timeout_s, config.retries, config.concurrency)


def _entries(found: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Returns the log probability and id of each token; raises FlywheelError for an answer of another form."""
    try:
        return [(entry[0], entry[1]) for entry in found["input_token_logprobs"]]
    except (KeyError, TypeError, IndexError):
        raise FlywheelError(
            "`train.opd.url`: the answer has no `input_token_logprobs`.", "Serve the teacher with SGLang."
        ) from None


def _blank() -> bytes:
    png = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), "gray").save(png, "png")
    return png.getvalue()
