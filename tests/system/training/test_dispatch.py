"""Exchange between the plans of two phases, on real gloo ranks."""

from pathlib import Path

import pytest

from tests.system.parts.ranks import run_text

SCRIPT = """
import numpy as np, torch, torch.distributed as dist
from learning.parallel.dispatch import route, all_to_all

dist.init_process_group("gloo")
torch.set_num_threads(1)
rank, world = dist.get_rank(), dist.get_world_size()
count = 9


def rows(items, plan):
    mine = [items[sample] for sample in range(count) if plan[sample] == rank]
    return torch.cat(mine) if mine else items[0][:0]

def gradients(a, b, inputs, way, goal):
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    hidden = torch.tanh(inputs @ a)
    hidden = all_to_all(hidden, way) if way else hidden
    loss = ((hidden @ b - goal) ** 2).sum()
    loss.backward()
    return a.grad, b.grad

for case in range(5):
    draw = np.random.default_rng(case)
    sizes = draw.integers(0, 4, count)
    images = [torch.from_numpy(draw.normal(size=(int(size), 5))) for size in sizes]
    targets = [torch.from_numpy(draw.normal(size=(int(size), 3))) for size in sizes]
    first, second = torch.from_numpy(draw.normal(size=(5, 4))), torch.from_numpy(draw.normal(size=(4, 3)))
    encoder, language = draw.integers(0, world, count), draw.integers(0, world, count)
    if case == 1:
        encoder[:], language[:] = 0, world - 1
    if case == 2:
        language = encoder.copy()
    way = route(encoder, language, sizes, rank, world)
    ours = gradients(first, second, rows(images, encoder), way, rows(targets, language))
    for part in ours:
        dist.all_reduce(part)
    whole = gradients(first, second, torch.cat(images), None, torch.cat(targets))
    worst = max(float((mine - theirs).abs().max()) for mine, theirs in zip(ours, whole))
    assert worst <= 1e-10, worst
    held = np.arange(count) % world
    there = rows(images, encoder)
    straight = all_to_all(there, way)
    around = all_to_all(there, route(encoder, held, sizes, rank, world))
    around = all_to_all(around, route(held, language, sizes, rank, world))
    assert torch.equal(straight, around)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_gradients_of_two_phases_under_different_plans_are_those_of_one_process(tmp_path: Path):
    run_text(SCRIPT, tmp_path)
