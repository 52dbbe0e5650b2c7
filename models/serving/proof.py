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
from collections.abc import Callable, Mapping
from typing import Any

from PIL import Image

from models.serving.openai import NoAnswer, OpenAIClient, Rejected
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
    choice = client.chat(
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
    """Asks one prompt with two seeds, and again if the answers are the same.

    Args:
        ask: sends a request at a temperature.
        fields: the model, and what every request says.

    Raises:
        FlywheelError: all answers are the same.
        NoAnswer: the server does not answer now.
    """
    messages = [{"role": "user", "content": [_picture(), {"type": "text", "text": QUESTION}]}]
    body = {**fields, "messages": messages, "max_tokens": LONG}
    one = ""
    for first in range(0, 2 * ROUNDS, 2):
        one, other = (str(ask({**body, "seed": seed}, HOT)["text"]) for seed in (first, first + 1))
        if one != other:
            return
    raise FlywheelError(
        f"`policy.server`: it does not sample: two seeds gave the same answer {ROUNDS} times at temperature {HOT:g} "
        f"({one[:60]!r}).",
        "Start the server so that requests decide how it samples, or take another server.",
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


def stock(temperature: float) -> dict[str, Any]:
    """The same for `transformers serve`, which refuses fields beyond the protocol and takes a whole config.

    It adds a frequency penalty to 1 for its repetition penalty, so that one is sent as 0.

    Source: transformers 5.23.0, `cli/serving/chat_completion.py`, `_build_generation_config`.
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
    "num_beams": 1,
    "guidance_scale": 1.0,
}
"""Fields of a `GenerationConfig` with the values that change nothing; what is left out is the checkpoint's."""
FORMS = (whole, stock)
"""How a request says what is sampled from, in the order in which a server is asked."""


class Sampling:
    """The form that a server takes; safe to share between threads.

    Args:
        client: the server.
    """

    def __init__(self, client: OpenAIClient) -> None:
        self._client, self._form = client, len(FORMS)

    def ask(self, body: Mapping[str, Any], temperature: float) -> dict[str, Any]:
        """Asks for a completion of the model's whole distribution; what the body says itself is kept.

        Raises:
            NoAnswer: the server failed, or takes none of the forms.
        """
        known = self._form < len(FORMS)
        refusal: NoAnswer | None = None
        for at in [self._form] if known else range(len(FORMS)):
            try:
                choice = self._client.chat({**FORMS[at](temperature), **body})
            except Rejected as error:
                refusal = refusal or error
                continue
            self._form = at
            return choice
        raise refusal or NoAnswer("")


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
