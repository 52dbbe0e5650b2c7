"""Sequence-parallel groups on real gloo ranks: every way to part four ranks gives the gradient of one process."""

from pathlib import Path

import pytest

from tests.system.parts.ranks import run_text
from tests.tiers import NIGHTLY

SCRIPT = """
import gc, sys
import torch, torch.distributed as dist
from learning.parallel.ulysses import GroupPool, attend

gc.disable()
dist.init_process_group("gloo")
torch.set_num_threads(1)
rank, world = dist.get_rank(), dist.get_world_size()
shape = [int(part) for part in sys.argv[1].split("+")]
seed, heads, keys = (int(word) for word in sys.argv[2:])
torch.manual_seed(seed)
HEADS, WIDTH, HIDDEN = heads, 3, 3 * heads
documents = [torch.randn(int(size), HIDDEN, dtype=torch.float64) for size in torch.randint(1, 9, (7,))]
goals = [torch.randn(len(document), HIDDEN, dtype=torch.float64) for document in documents]
weights = [torch.randn(HIDDEN, columns, dtype=torch.float64) / 4 for columns in (3 * HIDDEN, HIDDEN)]

def attention(q, k, v, segments):
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], dim=1) for part in (k, v))
    order = torch.arange(len(q))
    seen = (segments[:, None] == segments[None]) & (order[:, None] >= order[None])
    scores = torch.einsum("qhw,khw->hqk", q, k) / WIDTH**0.5
    return torch.einsum("hqk,khw->qhw", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)

def loss_of(weights, tokens, goal, real, segments, group):
    q, k, v = (tokens @ weights[0]).view(len(tokens), 3, HEADS, WIDTH).unbind(1)
    k, v = k[:, :keys], v[:, :keys]
    inner = lambda q, k, v: attention(q, k, v, segments)
    seen = inner(q, k, v) if group is None else attend(q, k, v, group, inner)
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
left = sum("Exchange" in type(one).__name__ for one in gc.get_objects())
assert not left, f"{left} exchanges and what they hold are only freed by a collection of circles"
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["4", "2+2", "2+1+1", "1+1+1+1"] if NIGHTLY else ["2+1+1"])
@pytest.mark.parametrize(
    ("heads", "keys"), [(4, 4), (4, 2), (4, 1), (12, 12), (24, 12)] if NIGHTLY else [(4, 2), (24, 12)]
)
def test_every_partition_of_four_ranks_gives_the_gradient_of_one_process(
    tmp_path: Path, shape: str, heads: int, keys: int
):
    """Also where there are fewer heads of keys than ranks in a group, and where the heads go in uneven rounds."""
    run_text(SCRIPT, tmp_path, shape, 3, heads, keys)


HIDDEN = """
import time
import torch, torch.distributed as dist
from learning.parallel.ulysses import GroupPool, attend

dist.init_process_group("gloo")
torch.set_num_threads(1)
LINK_S, ATTENTION_S, ROUNDS = 0.05, 0.1, 4
plain, free = dist.all_to_all_single, 0.0

class Late:
    # one exchange after the other on the same link
    def __init__(self, work):
        global free
        self.work, self.due = work, max(free, time.monotonic()) + LINK_S
        free = self.due

    def wait(self):
        time.sleep(max(0.0, self.due - time.monotonic()))
        self.work.wait()

dist.all_to_all_single = lambda *tensors, **more: Late(plain(*tensors, **more))

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        time.sleep(ATTENTION_S)
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ATTENTION_S)
        return gradient

def seconds(work):
    dist.barrier()
    start = time.monotonic()
    made = work()
    return time.monotonic() - start, made

group = GroupPool((2,)).of(0, 2)
q, k, v = (torch.randn(6, 8, 4, requires_grad=True) for _ in range(3))
forward, seen = seconds(lambda: attend(q, k, v, group, lambda q, k, v: Slow.apply(q + k + v)))
backward, _ = seconds(lambda: seen.sum().backward())
one_after_the_other = ROUNDS * (LINK_S + ATTENTION_S + LINK_S)
hidden = LINK_S + ROUNDS * ATTENTION_S + LINK_S
for spent in (forward, backward):
    assert spent < (hidden + one_after_the_other) / 2, (forward, backward)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_an_exchange_is_on_its_way_while_other_heads_attend(tmp_path: Path):
    """The first one and the last way back alone are waited for, forward and backward."""
    run_text(HIDDEN, tmp_path, ranks=2)
