"""Sequence-parallel groups on real gloo ranks: every way to part four ranks gives the gradient of one process."""

from pathlib import Path

import pytest

from tests.system.parts.ranks import run_text
from tests.tier import FULL

SCRIPT = """
import sys
import torch, torch.distributed as dist
from learning.parallel.ulysses import GroupPool, to_heads, to_tokens

dist.init_process_group("gloo")
torch.set_num_threads(1)
rank, world = dist.get_rank(), dist.get_world_size()
shape = [int(part) for part in sys.argv[1].split("+")]
seed, keys = int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(seed)
HEADS, WIDTH, HIDDEN = 4, 3, 12
documents = [torch.randn(int(size), HIDDEN, dtype=torch.float64) for size in torch.randint(1, 9, (7,))]
goals = [torch.randn(len(document), HIDDEN, dtype=torch.float64) for document in documents]
weights = [torch.randn(HIDDEN, columns, dtype=torch.float64) / 4 for columns in (3 * HIDDEN, HIDDEN)]

def attend(q, k, v, segments):
    order = torch.arange(len(q))
    seen = (segments[:, None] == segments[None]) & (order[:, None] >= order[None])
    scores = torch.einsum("qhw,khw->hqk", q, k) / WIDTH**0.5
    return torch.einsum("hqk,khw->qhw", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)

def loss_of(weights, tokens, goal, real, segments, group):
    q, k, v = (tokens @ weights[0]).view(len(tokens), 3, HEADS, WIDTH).unbind(1)
    k, v = k[:, :keys], v[:, :keys]
    if group is not None:
        q, k, v = to_heads((q, k, v), group)
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], dim=1) for part in (k, v))
    seen = attend(q, k, v, segments)
    if group is not None:
        seen = to_tokens(seen, group)
    out = torch.tanh(seen.flatten(1) @ weights[1])
    return (((out - goal) ** 2).sum(-1) * real).sum()

def packed(members, degree):
    tokens = torch.cat([documents[m] for m in members])
    goal = torch.cat([goals[m] for m in members])
    segments = torch.cat([torch.full((len(documents[m]),), m) for m in members])
    pad = -len(tokens) % degree
    blank = torch.zeros(pad, HIDDEN, dtype=torch.float64)
    real = torch.cat([torch.ones(len(tokens), dtype=torch.float64), torch.zeros(pad, dtype=torch.float64)])
    return torch.cat([tokens, blank]), torch.cat([goal, blank]), real, torch.cat([segments, torch.full((pad,), -1)])

def gradients(loss_from):
    leaves = [weight.clone().requires_grad_() for weight in weights]
    loss_from(leaves).backward()
    return [leaf.grad for leaf in leaves]

pool = GroupPool((1, 2, 4))
first = 0
owner = torch.randint(0, len(shape), (len(documents),)).tolist()
owner[: len(shape)] = range(len(shape))
for number, degree in enumerate(shape):
    if first <= rank < first + degree:
        members = [m for m in range(len(documents)) if owner[m] == number]
        tokens, goal, real, segments = packed(members, degree)
        stretch = slice(*(len(tokens) // degree * (rank - first + step) for step in (0, 1)))
        group = pool.of(first, degree) if degree > 1 else None
        ours = gradients(lambda leaves: loss_of(leaves, tokens[stretch], goal[stretch], real[stretch], segments, group))
    first += degree
for part in ours:
    dist.all_reduce(part)
tokens, goal, real, segments = packed(range(len(documents)), 1)
whole = gradients(lambda leaves: loss_of(leaves, tokens, goal, real, segments, None))
worst = max(float((mine - theirs).abs().max()) for mine, theirs in zip(ours, whole))
assert worst <= 1e-10, worst
dist.destroy_process_group()
"""


@pytest.mark.parametrize("shape", ["4", "2+2", "2+1+1", "1+1+1+1"] if FULL else ["4", "2+1+1"])
@pytest.mark.parametrize("keys", [4, 2, 1] if FULL else [2])
def test_every_partition_of_four_ranks_gives_the_gradient_of_one_process(tmp_path: Path, shape: str, keys: int):
    """Also where there are fewer heads of keys than ranks in a group."""
    run_text(SCRIPT, tmp_path, shape, 3, keys)
