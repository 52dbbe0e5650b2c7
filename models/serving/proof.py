"""That a server's log probabilities are those of what it samples from: shown by asking it twice.

At temperature T a token is drawn with p(a) ~ exp(z(a) / T), so log p(a) - log p(b) of two tokens is (z(a) - z(b)) / T:
half as much at T = 1 as at T = 1/2. A server that gives log probabilities from before the temperature (vLLM's default)
gives one difference for both, and a training on them would weigh every token wrongly without anybody noticing.
"""

import base64
import io
from collections.abc import Mapping
from typing import Any

from PIL import Image

from models.serving.openai import OpenAIClient
from schemas.failure import FlywheelError

TEMPERATURES = (1.0, 0.5)
QUESTION = "Name any word."
SIDE = 224
"""Pixels of the picture beside it: whoever acts is shown screens."""
TOP = 20
"""Tokens that are compared; the most that the protocol allows."""
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


def whole(temperature: float) -> dict[str, Any]:
    """Fields of a request that samples from the model's whole distribution, whatever the server would cut or punish by
    itself: a checkpoint's `generation_config.json` may ask for that."""
    return {
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }


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
