"""Tests a server's sampling and log-probs by asking it twice.

Replies are corrected by the checkpoint's chat template.

Each request sets every field that affects sampling, in the server's form. The checkpoint's `generation_config.json`
decides every unset field; Qwen2.5-VL's file penalises repetition. A server that gives the same answer for two seeds
does not sample, so all trajectories of a group would be equal.

At temperature T a token is drawn with p(a) ~ exp(z(a) / T), so log p(a) - log p(b) of two tokens is (z(a) - z(b)) / T:
half as much at T = 1 as at T = 1/2. A server that reports log-probs without the temperature (vLLM's default) gives the
same difference for both. Training on them would weigh every token wrongly, without any error.
"""

import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from common.text import storable
from models.families.thinking import OPEN as BEGIN_THINKING
from models.families.thinking import split_thinking
from models.serving.openai import FAILED, Failed, OpenAIClient, Rejected
from models.serving.replies import TEXT, THOUGHT, UNREAD, ServedReply
from schemas.failure import FlywheelError


def settled(choice: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Returns the choice with its reply corrected by the checkpoint's chat template.

    The server loses the text behind an unparsed call, which may hold the end of thinking. If the template mentions
    thinking and the reply may not have ended it, only the text before the calls is kept. If the prompt opens the
    thinking and the thinking is known to have no end, the opening tag of that text is removed, too.
    """
    reply: ServedReply = choice["reply"]
    text = reply.text
    ended = THOUGHT in reply.kinds or split_thinking(reply.before)[1] != reply.before
    if UNREAD in reply.kinds and not ended and BEGIN_THINKING in _template(checkpoint):
        text = reply.before
    elif reply.kinds == {THOUGHT} and reply.unended and _opens_thinking(_template(checkpoint)):
        text = text.removeprefix(BEGIN_THINKING).removeprefix("\n")
        reply = replace(reply, text=text, kinds=reply.kinds | {TEXT})
    return choice if text == choice["reply"].text else {**choice, "text": storable(text), "reply": reply}


def _template(checkpoint: Path) -> str:
    """Returns the first chat template in a checkpoint's files; empty if there is none."""
    found = list[Any]()
    for name in ("chat_template.jinja", "chat_template.json", "tokenizer_config.json"):
        try:
            text = (checkpoint / name).read_text(encoding="utf-8")
            given = text if name.endswith("jinja") else json.loads(text).get("chat_template")
        except (OSError, ValueError, AttributeError):
            continue
        found += [one.get("template") for one in given if isinstance(one, dict)] if isinstance(given, list) else [given]
    return next((one for one in found if isinstance(one, str)), "")


@lru_cache(maxsize=4)
def _opens_thinking(template: str) -> bool:
    """Checks whether a chat template ends its prompt with the beginning of thinking, by rendering it."""
    from transformers.utils.chat_template_utils import render_jinja_template

    for content in ([{"type": "text", "text": "Hi"}], "Hi"):
        chat = [{"role": "user", "content": content}]
        try:
            rendered = render_jinja_template(conversations=[chat], chat_template=template, add_generation_prompt=True)
        except Exception:  # a template may raise anything
            continue
        return rendered[0][0].rstrip().endswith(BEGIN_THINKING)
    return False


TEMPERATURES = (1.0, 0.5)
QUESTION = "Name any word."
SIDE = 224
"""Side of the image sent with the question, in pixels, since policies get screenshots."""
TOP = 20
"""Number of compared tokens; the protocol's maximum."""
ROUNDS, HOT, LONG = 3, 2.0, 24
"""Number of comparisons of two seeds, their temperature (the protocol's maximum) and their tokens.

Even a confident model is unlikely to give equal answers in all comparisons.
"""
CUT = -1e3
"""Lower bound of a log-prob; below it, a filter of the server has removed the token."""
LEAST = 0.02
"""Minimum difference of the two tokens in nats; below it, the test is inconclusive."""


def prove(client: OpenAIClient, fields: Mapping[str, Any], hint: str) -> None:
    """Tests the log-probs by asking for one token at two temperatures.

    Args:
        client: the server.
        fields: the model, and the fields of every request.
        hint: the setting to change if the test fails, for the error.

    Raises:
        FlywheelError: the answers lack token ids or log-probs, or the log-probs belong to another distribution; the
            message names the setting.
        NoAnswer: the server does not answer.
    """
    first, second = (_asked(client, fields, temperature, hint) for temperature in TEMPERATURES)
    shared = [token for token in first if token in second and min(first[token], second[token]) > CUT]
    if len(shared) < 2:
        raise _refused("fewer than two of the likeliest tokens are the same at two temperatures", hint)
    one, other = max(shared, key=first.__getitem__), min(shared, key=first.__getitem__)
    before, after = first[one] - first[other], second[one] - second[other]
    if before < LEAST:
        return  # an untrained model: all tokens are equally likely at every temperature
    expected = before * TEMPERATURES[0] / TEMPERATURES[1]
    if abs(after - expected) > abs(after - before):
        raise _refused(
            f"log probabilities are not those of the sampled distribution: two tokens differ by {before:.3f} nats at "
            f"temperature {TEMPERATURES[0]:g} and by {after:.3f}, not {expected:.3f}, at {TEMPERATURES[1]:g}",
            hint,
        )


def _asked(client: OpenAIClient, fields: Mapping[str, Any], temperature: float, hint: str) -> dict[str, float]:
    """Returns the log-probs of the likeliest first tokens at a temperature."""
    choice = client.complete(
        {
            **fields,
            **whole(temperature),
            "messages": [{"role": "user", "content": [_picture(), {"type": "text", "text": QUESTION}]}],
            "max_tokens": 1,
            "seed": 0,
            "logprobs": True,
            "return_token_ids": True,
            "top_logprobs": TOP,
        }
    )
    try:
        (entry,) = choice["logprobs"]["content"]
        found = {str(one["token"]): float(one["logprob"]) for one in entry["top_logprobs"]}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _refused("it gives no log probabilities", hint) from None
    if not token_ids(choice):
        raise _refused("it gives no token ids", hint)
    return found


def _picture() -> dict[str, Any]:
    png = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), "gray").save(png, "png")
    data = base64.b64encode(png.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def require_sampling(ask: Callable[[dict[str, Any], float], Mapping[str, Any]], fields: Mapping[str, Any]) -> None:
    """Tests that two seeds give different answers with readable text, in up to `ROUNDS` rounds.

    Args:
        ask: sends a request at a temperature.
        fields: the model, and the fields of every request.

    Raises:
        FlywheelError: the answers of each round are the same, or no answer holds a readable reply (`Readable`).
        NoAnswer: the server does not answer.
    """
    readable = Readable(2 * ROUNDS)
    messages = [{"role": "user", "content": [_picture(), {"type": "text", "text": QUESTION}]}]
    body = {**fields, "messages": messages, "max_tokens": LONG}
    one = ""
    for first in range(0, 2 * ROUNDS, 2):
        answers = [ask({**body, "seed": seed}, HOT) for seed in (first, first + 1)]
        for answer in answers:
            readable.check(answer)
        one, other = (str(answer["text"]) for answer in answers)
        if one != other:
            return
    raise FlywheelError(
        f"`policy.server`: the server does not sample: two seeds gave the same answer {ROUNDS} times at temperature "
        f"{HOT:g} ({one[:60]!r}).",
        "Start the server so that requests set its sampling, or use another server.",
    )


class Readable:
    """Checks that a server's answers hold replies of the policy; safe to share between threads.

    Args:
        patience: number of first answers without any reply after which the server is refused.
    """

    def __init__(self, patience: int) -> None:
        self._patience, self._none = patience, 0

    def check(self, answer: Mapping[str, Any]) -> None:
        """Checks an answer, until the first one with a reply.

        Raises:
            FlywheelError: no answer so far has a reply, though tokens were generated: the server drops them.
        """
        reply: ServedReply = answer["reply"]
        if not self._patience or answer.get("finish_reason") == "length":
            return
        if reply.kinds - {THOUGHT}:
            self._patience = 0
        if not self._patience or (not reply.kinds and answer["generated"] <= 1):  # an end of turn, or no count
            return
        self._none += 1
        if self._none < self._patience:
            return
        shape = f"`{reply.text[:60]!r}` is all thinking (`reasoning_content`)" if reply.kinds else "they are empty"
        raise FlywheelError(
            f"`policy.server`: no action can be read in its first {self._none} answers: {shape}, though the model "
            f"generated {answer['generated'] or 'some'} tokens in the last one.",
            "Start the server without parsers: vLLM and SGLang without --reasoning-parser and --tool-call-parser; for "
            "transformers serve put the response_template of docs/served-replies.md into tokenizer_config.json.",
        )


def whole(temperature: float) -> dict[str, Any]:
    """Returns the fields of a request that samples from the model's whole distribution.

    These fields override all filters and penalties of the server and of the checkpoint's `generation_config.json`.

    Source: `to_sampling_params` of vLLM 0.33.0 and SGLang 0.5.23 (`entrypoints/openai`).
    """
    return {
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "skip_special_tokens": True,
        "watermarking": False,
        "watermark": {"enabled": False},
    }


PROTOCOL = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
"""Fields of `whole` in OpenAI's protocol; a server that takes the protocol alone refuses all others."""


def stock(temperature: float) -> dict[str, Any]:
    """Returns the same fields for `transformers serve`, which refuses fields beyond the protocol and accepts a whole
    config.

    That server computes its repetition penalty as 1 plus the frequency penalty, so the latter is sent as 0.
    `require_neutral` refuses a checkpoint that sets fields that no request can override.

    Source: transformers 5.24.0, `cli/serving/utils.py` and `chat_completion.py`, `_build_generation_config`.
    """
    config = {**NEUTRAL, "do_sample": temperature > 0}
    return {
        "temperature": temperature,
        "top_p": 1.0,
        "frequency_penalty": 0.0,
        "generation_config": json.dumps(config),
    }


NEUTRAL: Mapping[str, Any] = {
    "top_k": 0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": 0,
    "max_time": 1e9,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "length_penalty": 1.0,
    "early_stopping": False,
    "num_return_sequences": 1,
    "penalty_alpha": 0.0,
    "guidance_scale": 1.0,
    "sequence_bias": [[[0], 0.0]],
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
    "remove_invalid_values": False,
    "renormalize_logits": False,
    "token_healing": False,
    "use_mtp": False,
}
"""Fields of a `GenerationConfig` with neutral values; the checkpoint decides any other field."""
FIXED = (
    "top_h",
    "bad_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "exponential_decay_length_penalty",
    "watermarking_config",
    "stop_strings",
    "constraints",
    "force_words_ids",
    "dola_layers",
    "prompt_lookup_num_tokens",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "speculation_type",
)
"""Fields that affect sampling and that no request can override.

These fields have no value that is neutral for every model, and `null` selects the checkpoint's value. All other fields
affect the begin of a prompt, the end of an answer, or the computation.
"""
_DECODERS = ("decoder", "generator", "text_config")
"""Sections of a `config.json` that `GenerationConfig.from_model_config` also reads if it is the only file."""


def require_neutral(checkpoint: Path) -> None:
    """Refuses a checkpoint whose files override the sampling fields of requests to `transformers serve`.

    Raises:
        FlywheelError: a file overrides a sampling field; the message names both.
    """
    file = checkpoint / "generation_config.json"
    file = file if file.is_file() else checkpoint / "config.json"
    if not file.is_file():
        return
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise FlywheelError(f"{file}: {error}.", "Repair the checkpoint's file.") from None
    sections = [found, *(found.get(name) for name in _DECODERS if file.name == "config.json")]
    for section in sections:
        for field in FIXED:
            if isinstance(section, dict) and section.get(field) is not None:
                raise FlywheelError(
                    f"{file}: {field} affects sampling, and no request to `transformers serve` can override it.",
                    "Remove it from the file, or serve with vLLM or SGLang.",
                )


_UNEXPECTED = re.compile(r"Unexpected \w+ in the request: \{([^{}]*)\}")


def _is_stock(refusal: Rejected) -> bool:
    """Checks whether `transformers serve` sent this refusal, which names all fields beyond the protocol.

    Source: transformers 5.24.0, `cli/serving/utils.py`, `_validate_request`.
    """
    named = _UNEXPECTED.search(refusal.answer)
    return bool(named) and (whole(1.0).keys() - PROTOCOL) <= set(re.findall(r"'(\w+)'", named[1]))


class Sampling:
    """Sends sampling requests in the server's form; safe to share between threads.

    Args:
        client: the server.
    """

    def __init__(self, client: OpenAIClient) -> None:
        self._client = client
        self._form: Callable[[float], dict[str, Any]] | None = None
        self._neutral: set[Path] = set()
        self._streams = False

    def ask(self, body: Mapping[str, Any], temperature: float, checkpoint: Path) -> dict[str, Any]:
        """Requests a completion sampled from the model's whole distribution; fields of the body take precedence.

        `transformers serve` generates a whole reply and answers a bare 500 if it cannot parse a tool call in it. The
        request is then repeated once as a stream; only a second failure counts as a failure of the server. A reply that
        this server splits is also requested again as a stream, since only a stream gives all parts in order. From then
        on all requests are streams.

        Args:
            body: the rest of the request.
            temperature: the sampling temperature.
            checkpoint: directory of the model that answers.

        Raises:
            NoAnswer: the server failed, or takes neither form.
            FlywheelError: the checkpoint overrides the sampling fields of a request.
        """
        return settled(self._asked(body, temperature, checkpoint), checkpoint)

    def _asked(self, body: Mapping[str, Any], temperature: float, checkpoint: Path) -> dict[str, Any]:
        if self._form is not stock:
            try:
                choice = self._client.complete({**whole(temperature), **body})
            except Rejected as refusal:
                if self._form is whole or not _is_stock(refusal):
                    raise
            else:
                self._form = whole
                return choice
            self._form = stock
        if checkpoint not in self._neutral:
            require_neutral(checkpoint)
            self._neutral.add(checkpoint)
        asked = {**stock(temperature), **body}
        if not self._streams:
            try:
                choice = self._client.complete(asked, final=(FAILED,))
                if choice["reply"].ordered:
                    return choice
                self._streams = True
            except Failed:  # perhaps the parser failed on the policy's reply; a stream gives more of it
                pass
        return self._client.complete({**asked, "stream": True})


def token_ids(choice: Mapping[str, Any]) -> list[int]:
    """Returns the token ids of an answer; empty where it has none.

    Sources are vLLM's `token_ids`, SGLang's `response_token_ids`, or names of tokens such as `token_id:7`.
    """
    for name in ("token_ids", "response_token_ids"):
        if given := choice.get(name):
            return list(given)
    names = [str(entry["token"]) for entry in (choice.get("logprobs") or {}).get("content") or []]
    if not all(name.startswith(_NUMBERED) for name in names):
        return []
    return [int(name.removeprefix(_NUMBERED)) for name in names]


_NUMBERED = "token_id:"


def _refused(what: str, hint: str) -> FlywheelError:
    return FlywheelError(f"`policy.server.logprobs`: {what}.", hint)
