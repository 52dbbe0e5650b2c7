"""That a server samples as it is asked to, and gives the log probabilities of that: shown by asking it twice.

A request says all that decides what is sampled, in the form that the server takes, since what it leaves open is decided
by the checkpoint's `generation_config.json` (Qwen2.5-VL's punishes repetition). A server that gives one answer for two
seeds does not sample: all attempts of a group would be alike.

At temperature T a token is drawn with p(a) ~ exp(z(a) / T), so log p(a) - log p(b) of two tokens is (z(a) - z(b)) / T:
half as much at T = 1 as at T = 1/2. A server that gives log probabilities from before the temperature (vLLM's default)
gives one difference for both, and a training on them would weigh every token wrongly without anybody noticing.
"""

import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from models.serving.openai import FAILED, Failed, OpenAIClient, Rejected
from models.serving.replies import THOUGHT, ServedReply, settled
from schemas.failure import FlywheelError

TEMPERATURES = (1.0, 0.5)
QUESTION = "Name any word."
SIDE = 224
"""Pixels of the picture beside it: whoever acts is shown screens."""
TOP = 20
"""Tokens that are compared; the most that the protocol allows."""
ROUNDS, HOT, LONG = 3, 2.0, 24
"""How often two seeds are compared, at which temperature (the highest that the protocol allows), over how many tokens:
a model that knows its answer hardly gives the same one so often."""
CUT = -1e3
"""A log probability below it is that of a token that something has cut away."""
LEAST = 0.02
"""Nats between the two tokens compared; below, nothing is shown."""


def prove(client: OpenAIClient, fields: Mapping[str, Any], hint: str) -> None:
    """Asks for one token at two temperatures.

    Args:
        client: the server.
        fields: the model, and what every request says.
        hint: what to set where it fails.

    Raises:
        FlywheelError: no token ids, no log probabilities, or those of another distribution; names what to set.
        NoAnswer: it does not answer now.
    """
    first, second = (_asked(client, fields, temperature, hint) for temperature in TEMPERATURES)
    shared = [token for token in first if token in second and min(first[token], second[token]) > CUT]
    if len(shared) < 2:
        raise _refused("fewer than two of the likeliest tokens are the same at two temperatures", hint)
    one, other = max(shared, key=first.__getitem__), min(shared, key=first.__getitem__)
    before, after = first[one] - first[other], second[one] - second[other]
    if before < LEAST:
        return  # a model that knows nothing: all tokens are alike at every temperature
    expected = before * TEMPERATURES[0] / TEMPERATURES[1]
    if abs(after - expected) > abs(after - before):
        raise _refused(
            f"log probabilities are not those of what is sampled: two tokens differ by {before:.3f} nats at "
            f"temperature {TEMPERATURES[0]:g} and by {after:.3f}, not {expected:.3f}, at {TEMPERATURES[1]:g}",
            hint,
        )


def _asked(client: OpenAIClient, fields: Mapping[str, Any], temperature: float, hint: str) -> dict[str, float]:
    """The log probabilities of the likeliest first tokens at a temperature."""
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
    """Asks one prompt with two seeds, and again if the answers are the same; their text must be there, too.

    Args:
        ask: sends a request at a temperature.
        fields: the model, and what every request says.

    Raises:
        FlywheelError: all answers are the same, or no reply of the policy could be read in any (`Readable`).
        NoAnswer: the server does not answer now.
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
        f"`policy.server`: it does not sample: two seeds gave the same answer {ROUNDS} times at temperature {HOT:g} "
        f"({one[:60]!r}).",
        "Start the server so that requests decide how it samples, or take another server.",
    )


class Readable:
    """Whether replies of the policy can be read in a server's answers; safe to share between threads.

    Args:
        patience: how many answers in a row, from the first on, may hold none.
    """

    def __init__(self, patience: int) -> None:
        self._patience, self._none = patience, 0

    def check(self, answer: Mapping[str, Any]) -> None:
        """Takes an answer; after the first with a reply no other is looked at.

        Raises:
            FlywheelError: in none so far there was a reply, though tokens were generated: the server keeps them.
        """
        reply: ServedReply = answer["reply"]
        if not self._patience or answer.get("finish_reason") == "length":
            return
        if reply.kinds - {THOUGHT}:
            self._patience = 0
        if not self._patience or (not reply.kinds and answer["generated"] <= 1):  # the end of a turn, or not known
            return
        self._none += 1
        if self._none < self._patience:
            return
        told = f"`{reply.text[:60]!r}` is all thinking (`reasoning_content`)" if reply.kinds else "they are empty"
        raise FlywheelError(
            f"`policy.server`: no action can be read in its first {self._none} answers: {told}, though the model "
            f"generated {answer['generated'] or 'some'} tokens in the last one.",
            "Start the server without parsers: vLLM and SGLang without --reasoning-parser and --tool-call-parser; for "
            "transformers serve put the response_template of docs/served-replies.md into tokenizer_config.json.",
        )


def whole(temperature: float) -> dict[str, Any]:
    """Fields of a request that samples from the model's whole distribution, whatever the server would cut or punish by
    itself: a checkpoint's `generation_config.json` may ask for that.

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
"""Fields of `whole` that OpenAI's protocol has; all others are refused by a server that takes no more than it."""


def stock(temperature: float) -> dict[str, Any]:
    """The same for `transformers serve`, which refuses fields beyond the protocol and takes a whole config.

    It adds a frequency penalty to 1 for its repetition penalty, so that one is sent as 0. `require_neutral` refuses a
    checkpoint that sets what no request can set back.

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
"""Fields of a `GenerationConfig` with the values that change nothing; what is left out is the checkpoint's."""
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
"""Its fields that decide, too, and that no request can set back: no value of theirs changes nothing for every model,
and `null` is the checkpoint's. The rest says where a prompt begins and an answer ends, or how it is computed."""
_DECODERS = ("decoder", "generator", "text_config")
"""Sections of a `config.json` that `GenerationConfig.from_model_config` reads, too, where there is no other file."""


def require_neutral(checkpoint: Path) -> None:
    """Refuses a checkpoint that decides what `transformers serve` samples, whatever a request says.

    Raises:
        FlywheelError: names the file and the field.
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
                    f"{file}: {field} decides what is sampled, and no request to `transformers serve` can set it back.",
                    "Remove it from the file, or serve with vLLM or SGLang.",
                )


_UNEXPECTED = re.compile(r"Unexpected \w+ in the request: \{([^{}]*)\}")


def _is_stock(refusal: Rejected) -> bool:
    """Whether a server refused `whole` as `transformers serve` does: for all fields beyond the protocol, by name.

    Source: transformers 5.24.0, `cli/serving/utils.py`, `_validate_request`.
    """
    named = _UNEXPECTED.search(refusal.answer)
    return bool(named) and (whole(1.0).keys() - PROTOCOL) <= set(re.findall(r"'(\w+)'", named[1]))


class Sampling:
    """The form that a server takes; safe to share between threads.

    Args:
        client: the server.
    """

    def __init__(self, client: OpenAIClient) -> None:
        self._client = client
        self._form: Callable[[float], dict[str, Any]] | None = None
        self._neutral: set[Path] = set()
        self._streams = False

    def ask(self, body: Mapping[str, Any], temperature: float, checkpoint: Path) -> dict[str, Any]:
        """Asks for a completion of the model's whole distribution; what the body says itself is kept.

        `transformers serve` answers a tool call that it cannot read with a bare 500, for which it has generated a whole
        reply: it is asked once more for a stream, and only then is it a failure of the server. The same holds where it
        splits a reply, of which a stream alone gives all parts in their order; from then on a stream is all it is asked
        for.

        Args:
            body: the rest of the request.
            temperature: what the model samples at.
            checkpoint: of the model that answers.

        Raises:
            NoAnswer: the server failed, or takes neither form.
            FlywheelError: the checkpoint decides what is sampled, whatever a request says.
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
            except Failed:  # perhaps at the policy's own words, of which a stream gives more
                pass
        return self._client.complete({**asked, "stream": True})


def token_ids(choice: Mapping[str, Any]) -> list[int]:
    """The tokens of an answer, as vLLM (`token_ids`), SGLang (`response_token_ids`) or names such as `token_id:7` say
    them; empty where nothing does."""
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
