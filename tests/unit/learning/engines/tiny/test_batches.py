"""Batches: questions share a screen without seeing each other, and a moved screen moves what is said about it."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from learning.data.sample import TrainSample
from learning.engines.tiny.batches import Batcher, ForwardBatch, outputs_of
from models.tiny.build import pixels_of
from models.tiny.generator import prompt_text, read_tokenizer
from models.tiny.network import TinyNet, pack, visible
from models.tiny.tokens import BINS
from schemas.config.training import TrainConfig
from tests.unit.learning.samples import HEIGHT, POLICY, TRAIN, WIDTH, parent, samples


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return parent(tmp_path_factory.mktemp("policy"))


def batcher(directory: Path, pngs: dict[str, bytes], **train: object) -> Batcher:
    net = TinyNet.load(directory, torch.float32)
    config: TrainConfig = TRAIN.model_copy(update=train)
    return Batcher(read_tokenizer(directory), net, pngs, POLICY, config)


def test_a_packed_question_is_answered_as_if_it_stood_alone(directory: Path) -> None:
    net = TinyNet.load(directory, torch.float32)
    torch.manual_seed(0)
    screen = torch.randn(1, 6, 64)
    questions = [[300, 301, 302], [303, 304], [305, 306, 307, 308]]

    def hidden(row: list[list[int]]) -> torch.Tensor:
        packed = pack([row], (2, 3), 1, 0, net.starts)
        x = torch.cat([screen, net.embed(packed.tokens)], dim=1)
        return net.read(x, packed.positions, visible(packed.segments, net.dtype))[0, 6:]

    together, start = hidden(questions), 0
    for question in questions:
        alone = hidden([question])[: len(question)]
        assert torch.allclose(together[start : start + len(question)], alone, atol=1e-5)
        start += len(question)


def test_the_loss_of_a_question_does_not_know_the_other_answers(directory: Path) -> None:
    made, pngs = samples(1)
    (sample,) = made
    net = TinyNet.load(directory, torch.float32)
    maker = batcher(directory, pngs, grounding=2, reading=2, shift=0)
    (batch,) = maker.batches([sample], [(0, 0)])
    tokens = batch.packed.tokens.clone()
    last = int((batch.packed.segments[0] == batch.packed.segments.max()).nonzero()[0]) - batch.packed.segments.shape[1]
    tokens[0, last:] = 7
    seen = net.see(batch.patches.float(), batch.grid)

    def hidden(ids: torch.Tensor) -> torch.Tensor:
        x = torch.cat([seen, net.embed(ids)], dim=1)
        return net.read(x, batch.packed.positions, visible(batch.packed.segments, net.dtype))

    assert torch.allclose(hidden(tokens)[0, :last], hidden(batch.packed.tokens)[0, :last], atol=1e-5)


def darkest(batch: ForwardBatch, maker: Batcher, index: int) -> None:
    """The supervised places of a row point at pixels that are not white."""
    assert batch.aims is not None
    rows = (batch.rows == index) & (batch.aims.places >= 0)
    places = batch.aims.places[rows] / (BINS - 1)
    x, y = places[0] * WIDTH, places[1] * HEIGHT
    canvas = batch.patches[index].float().reshape(2, 3, 2, 2, 3, 16, 16).permute(0, 2, 5, 1, 3, 6, 4).reshape(64, 96, 3)
    assert canvas[int(y), int(x)].abs().sum() > 0


def test_a_moved_screen_moves_its_targets_along(directory: Path) -> None:
    made, pngs = samples(4)
    maker = batcher(directory, pngs, shift=8)
    moved = 0
    for seed in range(6):
        (batch,) = maker.batches(made, [(seed, index) for index in range(4)])
        for index, sample in enumerate(made):
            darkest(batch, maker, index)
            (plain,) = batcher(directory, pngs, shift=0).batches([sample], [(0, 0)])
            moved += not torch.equal(plain.patches[0], batch.patches[index])
    assert moved > 12


def test_without_shift_the_screen_is_shown_as_it_was(directory: Path) -> None:
    made, pngs = samples(1)
    (batch,) = batcher(directory, pngs, shift=0).batches(made, [(0, 0)])
    pixels = pixels_of(pngs[made[0].screenshots[0]]).astype(np.float32)
    assert float(batch.patches.float().sum()) == pytest.approx(((pixels - 255) / 51).sum(), rel=1e-2)


def test_the_prompt_of_a_sample_is_the_prompt_of_the_policy(directory: Path) -> None:
    made, pngs = samples(5)
    sample = next(item for item in made if item.history)
    maker = batcher(directory, pngs, shift=0)
    (batch,) = maker.batches([sample], [(0, 0)])
    text = read_tokenizer(directory).decode(batch.packed.tokens[0].tolist(), skip_special_tokens=False)
    past = sample.history[0]
    chat = [
        {"role": "user", "content": [{"type": "text", "text": sample.instruction}]},
        {"role": "assistant", "content": [{"type": "text", "text": f"Thought: {past.thought}\nAction: "}]},
    ]
    assert text.startswith(prompt_text(chat[:1]) + f"Thought: {past.thought}\nAction: click(start_box='(")


def test_a_screen_without_an_action_still_teaches_where_things_are(directory: Path) -> None:
    made, pngs = samples(6)
    sample = next(item for item in made if not item.actions)
    (batch,) = batcher(directory, pngs, grounding=2, reading=0, shift=0).batches([sample], [(0, 0)])
    assert batch.aims is not None and len(batch.aims.places) == 4 and (batch.aims.places >= 0).all()


def test_a_sample_that_asks_nothing_costs_nothing(directory: Path) -> None:
    made, pngs = samples(1)
    empty = TrainSample("t", made[0].screenshots, "Look.")
    (batch,) = batcher(directory, pngs).batches([made[0], empty], [(0, 0), (0, 1)])
    assert set(batch.rows.tolist()) == {0}
    assert torch.isfinite(outputs_of(TinyNet.load(directory), batch).logprobs).all()


def test_a_copying_question_is_answered_by_typing_a_text_of_the_screen(directory: Path) -> None:
    made, pngs = samples(6)
    sample = next(item for item in made if not item.actions)
    maker = batcher(directory, pngs, grounding=0, reading=0, shift=0, copying=1.0)
    (batch,) = maker.batches([sample], [(0, 0)])
    said = read_tokenizer(directory).decode(batch.targets.tolist())
    assert said in {f"type(content='{question.name}')" for question in sample.questions}


def test_the_parts_of_all_ranks_are_the_batch_and_long_rows_stand_together(directory: Path) -> None:
    made, pngs = samples(12)
    seeds = [(0, index) for index in range(12)]
    (whole,) = batcher(directory, pngs).batches(made, seeds)
    parts = [part for rank in range(3) for part in batcher(directory, pngs).batches(made, seeds, rank, 3)]
    assert sorted(whole.packed.lengths) == sorted(length for part in parts for length in part.packed.lengths)
    padded = [len(part.packed.lengths) * part.packed.tokens.shape[1] for part in parts]
    in_order = [-(-max(whole.packed.lengths[rank::3]) // 16) * 16 * 4 for rank in range(3)]
    assert max(padded) <= max(in_order)


def test_large_screens_are_spread_over_the_ranks(directory: Path) -> None:
    made, pngs = samples(8)
    for sha in {sample.screenshots[-1] for sample in made[:2]}:
        pngs[sha] = enlarged(pngs[sha])
    seeds = [(0, index) for index in range(8)]
    parts = [batcher(directory, pngs).batches(made, seeds, rank, 2) for rank in range(2)]
    largest = max(piece.grid for part in parts for piece in part)
    assert [sum(piece.grid == largest for piece in part) for part in parts] == [1, 1]


def enlarged(png: bytes) -> bytes:
    large = Image.new("RGB", (4 * WIDTH, 3 * HEIGHT), "white")
    large.paste(Image.open(io.BytesIO(png)))
    written = io.BytesIO()
    large.save(written, "png")
    return written.getvalue()


def test_a_small_screen_beside_a_large_one_is_trained_as_if_it_stood_alone(directory: Path) -> None:
    made, pngs = samples(6)
    pngs[made[0].screenshots[-1]] = enlarged(pngs[made[0].screenshots[-1]])
    maker, seeds = batcher(directory, pngs), [(0, index) for index in range(len(made))]
    pieces = maker.batches(made, seeds)
    alone = [maker.batches([sample], [seed])[0] for sample, seed in zip(made, seeds, strict=True)]
    assert len({piece.grid for piece in pieces}) == 2
    net = TinyNet.load(directory, torch.float32)
    for piece in pieces:
        logprobs = outputs_of(net, piece).logprobs
        assert {alone[member].grid for member in piece.members} == {piece.grid}
        assert len(logprobs) == sum(len(outputs_of(net, alone[member]).logprobs) for member in piece.members)
        parts = [outputs_of(net, alone[member]).logprobs for member in piece.members]
        torch.testing.assert_close(logprobs.sort()[0], torch.cat(parts).sort()[0], rtol=1e-3, atol=1e-4)


def test_a_rank_that_is_left_without_samples_gets_no_batch(directory: Path) -> None:
    made, pngs = samples(1)
    parts = [batcher(directory, pngs).batches(made, [(0, 0)], rank, 2) for rank in range(2)]
    assert [len(part) for part in parts] == [1, 0]
