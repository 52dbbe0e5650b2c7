"""What is kept of prompts: found by the longest common beginning, within a bound, what was used longest ago first."""

import random

import torch

from models.serving.prompt_cache import MOST_STATES, Prefixes, Prompt, PromptCache


def layers(prompt: Prompt, *states: int) -> PromptCache:
    """One layer whose keys are the tokens, 8 bytes a token with the values, and states of 8 bytes."""
    keys = torch.tensor(prompt, dtype=torch.float32).view(1, 1, -1, 1)
    kept = {at: {1: (torch.tensor([[[float(at)]]]), torch.tensor([[[[float(at)]]]]))} for at in states}
    return PromptCache(len(prompt), {0: (keys, keys.clone())}, kept)


def found(kept: Prefixes, prompt: Prompt) -> Prompt:
    known, _ = kept.longest(prompt)
    return tuple(int(key) for key in known.keys[0][0].flatten()) if known else ()


def test_what_is_found_is_the_longest_beginning_in_common_with_any() -> None:
    kept, chance = Prefixes(10**9), random.Random(0)
    prompts = [tuple(chance.choices((1, 2, -3), k=chance.randint(1, 9))) for _ in range(60)]
    for prompt in prompts:
        kept.keep(prompt, layers(prompt))
    for _ in range(200):
        asked = tuple(chance.choices((1, 2, -3), k=chance.randint(1, 9)))
        known = [at for at in range(len(asked) + 1) if any(one[:at] == asked[:at] for one in prompts)]
        assert found(kept, asked) == asked[: max(known)]
    assert found(kept, (7, 1)) == () and kept.longest((7,)) == (None, 0)


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
    assert found(kept, (1, 9)) == (1,)
    kept.keep((4,), layers((4,)))
    assert kept.held == 4 * 8
    kept.trim()
    assert kept.held == 3 * 8 and [found(kept, (token,)) for token in (1, 2, 3, 4)] == [(1,), (), (3,), (4,)]
    kept.keep((5,) * 4, layers((5,) * 4))
    kept.trim()
    assert len(kept) == kept.held == 0


def test_a_prompt_with_states_continues_where_there_is_one() -> None:
    kept = Prefixes(10**9)
    kept.keep((1, 2, 3, 4), layers((1, 2, 3, 4), 4))
    assert found(kept, (1, 2, 3, 4, 5)) == (1, 2, 3, 4)
    assert kept.longest((1, 2, 9)) == (None, 2), "the state after two tokens is not known"
    kept.keep((1, 2, 9), layers((1, 2, 9), 2, 3))
    for prompt in ((1, 2, 8), (1, 2, 3, 8), (1, 2, 9)):
        known, shared = kept.longest(prompt)
        assert known is not None and float(known.state[1][0]) == known.tokens
        assert (known.tokens, shared) == ((3, 3) if prompt[2] == 9 else (2, len(prompt) - 1))


def test_a_prompt_keeps_its_first_state_and_its_last_ones() -> None:
    kept = Prefixes(10**9)
    prompt = tuple(range(1, 12))
    kept.keep(prompt, layers(prompt, *prompt))
    assert kept.held == 11 * 8 + MOST_STATES * 8
    assert [found(kept, (*prompt[:at], 99)) for at in (1, 5, 9, 11)] == [(1,), (1,), prompt[:9], prompt]
    kept.keep(prompt[:4], layers(prompt[:4], 4))
    assert kept.held == 11 * 8 + MOST_STATES * 8, "the bound holds for states that come later"


def test_the_neighbour_with_the_later_state_is_continued() -> None:
    kept = Prefixes(10**9)
    kept.keep((5, 5, 5, 5, 9), layers((5, 5, 5, 5, 9), 4, 5))
    kept.keep((5, 5, 5, 5, 5, 5), layers((5, 5, 5, 5, 5, 5), 2, 6))
    kept._kept[(5, 5, 5, 5, 5, 5)].states.pop(4, None)  # as if it had been dropped for later ones
    known, shared = kept.longest((5, 5, 5, 5, 5, 7))
    assert known is not None and (known.tokens, shared) == (4, 5)
