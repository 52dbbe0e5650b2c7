"""What is kept of prompts: found by the longest common beginning, within a bound, what was used longest ago first."""

import random

import torch

from models.serving.local import Layers, Prefixes, Prompt, length


def layers(prompt: Prompt) -> Layers:
    """One layer whose keys are the tokens, 8 bytes a token with the values."""
    keys = torch.tensor(prompt, dtype=torch.float32).view(1, 1, -1, 1)
    return [(keys, keys.clone())]


def found(kept: Prefixes, prompt: Prompt) -> Prompt:
    known = kept.longest(prompt)
    return tuple(int(key) for key in known[0][0].flatten()) if known else ()


def test_what_is_found_is_the_longest_beginning_in_common_with_any() -> None:
    kept, chance = Prefixes(10**9), random.Random(0)
    prompts = [tuple(chance.choices((1, 2, -3), k=chance.randint(1, 9))) for _ in range(60)]
    for prompt in prompts:
        kept.keep(prompt, layers(prompt))
    for _ in range(200):
        asked = tuple(chance.choices((1, 2, -3), k=chance.randint(1, 9)))
        known = [at for at in range(len(asked) + 1) if any(one[:at] == asked[:at] for one in prompts)]
        assert found(kept, asked) == asked[: max(known)]
    assert found(kept, (7, 1)) == () and kept.longest((7,)) is None


def test_a_prompt_that_another_begins_with_is_kept_once() -> None:
    kept = Prefixes(10**9)
    for prompt in ((1, 2), (1, 2, 3, 4), (1, 2, 3), (1, 2, 3, 4)):
        kept.keep(prompt, layers(prompt))
    assert len(kept) == 1 and kept.held == 4 * 8
    assert found(kept, (1, 2, 5)) == (1, 2)


def test_what_was_used_longest_ago_goes_first() -> None:
    kept = Prefixes(3 * 8)
    for token in (1, 2, 3):
        kept.keep((token,), layers((token,)))
    assert length(kept.longest((1, 9))) == 1
    kept.keep((4,), layers((4,)))
    assert kept.held == 4 * 8
    kept.trim()
    assert kept.held == 3 * 8 and [found(kept, (token,)) for token in (1, 2, 3, 4)] == [(1,), (), (3,), (4,)]
    kept.keep((5,) * 4, layers((5,) * 4))
    kept.trim()
    assert len(kept) == kept.held == 0
