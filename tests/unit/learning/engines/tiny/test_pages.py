"""Batches of rendered pages: packing changes no answer, and targets are where the letters are."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from learning.data.pages import elements_of, lines_of, read_pages
from learning.data.rounds import Round, Rounds
from learning.engines.engine import SampleRef
from learning.engines.tiny.engine import TinyEngine
from learning.engines.tiny.exam import SHAPE, answers, edits, measures_of
from learning.engines.tiny.pages import LETTERS, POINTS, READERS, PageBatch, PageBatcher, page_outputs, visible_in
from learning.learner import Learner
from learning.trainer import refs_of
from models.policy import Context
from models.tiny.generator import prompt_text, read_tokenizer
from models.tiny.network import TinyNet, pack, visible
from models.vlm import VlmPolicy
from schemas.observation import Observation
from tests.drawn import POLICY, TRAIN, job, parent, samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("base")
    parent(made)
    return made


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with a reading head for each quarter of a token."""
    made = tmp_path_factory.mktemp("wide")
    parent(made, hidden=192)
    return made


def batcher(
    folder: Path, net: TinyNet, pngs: dict[str, bytes], steps: int = 10, shift: int = TRAIN.shift, **settings: Any
) -> PageBatcher:
    pretrain = TRAIN.pretrain.model_copy(update={"letters_steps": 0, "whole_share": 0.0, **settings})
    config = TRAIN.model_copy(update={"pretrain": pretrain, "shift": shift})
    return PageBatcher(read_tokenizer(folder / "parent"), net, pngs, POLICY, config, steps)


def one(
    folder: Path, pages: int = 2, position: int = 0, size: tuple[int, int] = (96, 64), **settings: Any
) -> tuple[TinyNet, list[PageBatch], PageBatcher]:
    net = TinyNet.load(folder / "parent", torch.float32)
    made, pngs = samples(pages, size=size)
    maker = batcher(folder, net, pngs, **settings)
    refs = [SampleRef(position + number, number) for number in range(len(made))]
    return net, maker.batches(made, refs, 0), maker


def test_questions_packed_on_one_screen_have_the_logits_that_each_has_alone(folder: Path) -> None:
    net, (piece, *_), maker = one(folder, pairs=0.0)
    assert piece.packed is not None
    seen = net.lead(net.see(piece.patches, piece.grid), len(piece.packed.tokens))
    mask = visible(piece.packed.segments, net.dtype, seen.shape[1])
    packed = net.read_after(seen, net.embed(piece.packed.tokens), piece.packed.positions, mask).hidden
    segments = piece.packed.segments[0, seen.shape[1] :]
    assert int(segments.max()) > 4
    for number in range(1, int(segments.max()) + 1):
        ids = piece.packed.tokens[0, segments == number]
        alone = pack([[ids.tolist()]], (piece.grid.rows // 4, piece.grid.columns // 4), 1, maker.pad, net.starts)
        text = torch.cat([seen[:1], net.embed(alone.tokens)], dim=1)
        hidden = net.read(text, alone.positions, visible(alone.segments, net.dtype))[:, seen.shape[1] :]
        torch.testing.assert_close(
            net.logits(packed[0, segments == number]), net.logits(hidden[0, : len(ids)]), rtol=1e-4, atol=1e-4
        )


def test_measured_answers_are_those_of_whole_forward_passes(folder: Path) -> None:
    net = TinyNet.load(folder / "parent", torch.float32)
    made, pngs = samples(2)
    maker = batcher(folder, net, pngs)
    seen, grid = maker.see(net, made)
    seen = net.lead(seen, len(made))
    asked = [(1, [5, 40, 41]), (0, [6]), (1, list(range(40, 60)))]
    expected: list[list[int]] = []
    for row, prompt in asked:
        written: list[int] = []
        while len(written) < 4:
            alone = pack([[[*prompt, *written]]], (grid.rows // 4, grid.columns // 4), 1, maker.pad, net.starts)
            text = torch.cat([seen[row : row + 1], net.embed(alone.tokens)], dim=1)
            hidden = net.read(text, alone.positions, visible(alone.segments, net.dtype))
            written.append(int(net.logits(hidden[0, seen.shape[1] + len(prompt) + len(written) - 1]).argmax()))
        expected.append(written)
    assert answers(net, maker, seen, grid, asked, 4) == expected
    assert expected[0] != expected[2]


def test_each_letter_is_in_the_cell_under_its_middle(folder: Path) -> None:
    _, pieces, _ = one(folder, pages=1, pairs=0.0)
    found = [
        (int(token), int(cell), int(letter))
        for piece in pieces
        for (screen, token, cell), letter in zip(piece.cells.tolist(), piece.letters.tolist(), strict=True)
        if letter
    ]
    made, _ = samples(1)
    letters = [LETTERS[one] for sample in made for line in lines_of(sample) for one in line.text]
    assert len(found) >= 0.8 * len(letters)  # letters of one cell count once, and a shift moves some off the screen
    assert {letter for _, _, letter in found} <= set(letters)


def test_heads_look_at_letters_of_the_next_word_and_of_the_name_and_at_the_place(wide: Path) -> None:
    net, pieces, maker = one(wide, pairs=0.0)
    tokenizer = read_tokenizer(wide / "parent")
    for piece in pieces:
        letters: dict[tuple[int, int], set[int]] = {}
        quarters: dict[tuple[int, int, int], set[int]] = {}
        for (screen, token, cell), letter in zip(piece.cells.tolist(), piece.letters.tolist(), strict=True):
            letters.setdefault((screen, token), set()).add(letter)
            quarters.setdefault((screen, token, READERS[cell // 4 * 2 + cell % 4 // 2]), set()).add(letter)
        assert piece.packed is not None
        last: dict[tuple[int, int], int] = {}
        readers: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        for row, column, head, at in piece.gaze.tolist():
            token, here = at - net.starts, (piece.rows == row) & (piece.columns == column)
            asked = int(
                piece.packed.segments[row, piece.packed.segments.shape[1] - piece.packed.tokens.shape[1] + column]
            )
            given = tokenizer.id_to_token(int(piece.packed.tokens[row, column]))
            assert given is not None
            if head in READERS:
                readers.setdefault((row, column), []).append((head, bool(at)))
            if head in READERS and at:  # the next letter, in the quarter of this head
                (target,) = piece.targets[here].tolist()
                text = tokenizer.id_to_token(target)
                assert text is not None and LETTERS[text[0]] in quarters[row, token, head]
            elif head in READERS:
                pass
            elif not here.any():  # a letter of a name
                assert LETTERS[given] in letters[row, token]
                last[row, asked] = token
            elif (row, asked) in last:  # the place of a name
                assert token == last[row, asked]
            else:
                (target,), (place,) = piece.targets[here].tolist(), piece.places[here].tolist()
                sides = [(token % 6, 6)] if maker.first[target] == maker.first.unique()[1] else [(token // 6, 4)]
                assert all(at / side <= place / 100 <= (at + 1) / side for at, side in sides)
        assert last and readers
        for looks in readers.values():  # one reading head looks at the letter, and the others at the start
            assert sorted(head for head, _ in looks) == [*READERS] and sum(there for _, there in looks) == 1


def test_reading_heads_copy_each_letter_of_their_quarter(wide: Path) -> None:
    net, pieces, _ = one(wide, pairs=0.0)
    tokenizer = read_tokenizer(wide / "parent")
    for piece in pieces:
        found = {
            (screen, READERS[cell // 4 * 2 + cell % 4 // 2], token + net.starts, letter)
            for (screen, token, cell), letter in zip(piece.cells.tolist(), piece.letters.tolist(), strict=True)
            if letter
        }
        letters = [tokenizer.id_to_token(one) for one in piece.copies[:, 3].tolist()]
        copied = [
            (*one, LETTERS[str(letter)]) for one, letter in zip(piece.copies[:, :3].tolist(), letters, strict=True)
        ]
        assert set(copied) == found and len(copied) >= len(found) > 0
        for row in range(len(piece.members)):
            assert float(piece.copy_weights[piece.copies[:, 0] == row].sum()) == pytest.approx(1.0)


def test_a_network_with_few_heads_reads_with_the_first_one(folder: Path) -> None:
    _, pieces, _ = one(folder, pairs=0.0)
    for piece in pieces:
        assert set(piece.copies[:, 1].tolist()) == {READERS[0]} and set(piece.gaze[:, 2].tolist()) == {0, POINTS}
        assert (piece.gaze[piece.gaze[:, 2] == READERS[0]][:, 3] > 0).all()


def test_a_heads_logits_are_those_of_a_token_that_adds_nothing_else(wide: Path) -> None:
    net = TinyNet.load(wide / "parent", torch.float32)
    weight = net.leaves["model.language_model.layers.1.self_attn.o_proj.weight"]
    values, heads = torch.randn(3, net.head), torch.tensor([4, 0, 2])
    added = torch.stack(
        [weight[:, head * net.head :][:, : net.head] @ value for value, head in zip(values, heads, strict=True)]
    )
    torch.testing.assert_close(net.head_logits(values, heads), net.word_logits(added))


def test_large_screens_are_cropped_with_the_questions_inside_and_whole_at_the_end(folder: Path) -> None:
    _, pieces, _ = one(folder, size=(200, 160), pairs=0.0)
    assert {tuple(piece.grid) for piece in pieces} == {(16, 24)}
    for piece in pieces:
        assert (piece.places <= 100).all()
        assert (piece.cells[:, 1] < 24).all() and (piece.gaze[:, 3] < 25).all()
    _, whole, _ = one(folder, size=(200, 160), position=1000, pairs=0.0, whole_share=0.5)
    assert {tuple(piece.grid) for piece in whole} == {(40, 52)}


def test_crops_grow_in_some_steps_up_to_the_factor_and_alike_within_a_step(folder: Path) -> None:
    areas = []
    for step in range(40):
        _, pieces, _ = one(folder, 1, 2 * step, (900, 700), steps=1000, pairs=0.0, crop_growth=3.0)
        (grid,) = {tuple(piece.grid) for piece in pieces}
        assert 16 * 24 <= grid[0] * grid[1] <= 9 * 16 * 24
        areas.append(grid[0] * grid[1] / (16 * 24))
    assert len({*areas}) > 3 and sorted(areas)[20] < 4
    _, again, _ = one(folder, 1, 0, (900, 700), steps=1000, pairs=0.0, crop_growth=3.0)
    assert {piece.grid[0] * piece.grid[1] / (16 * 24) for piece in again} == {areas[0]}


def test_pairs_ask_for_the_change_and_for_the_action_behind_two_screens(folder: Path) -> None:
    _, pieces, _ = one(folder, pairs=1.0)
    assert {piece.screens for piece in pieces} == {1, 2}
    tokenizer = read_tokenizer(folder / "parent")
    (pair,) = [piece for piece in pieces if piece.screens == 2]
    assert pair.packed is not None
    text = tokenizer.decode(pair.packed.tokens[0].tolist())
    assert "What changed?" in text and "What was done?" in text and "is now checked." in text


def test_the_instruction_is_asked_as_the_acting_policy_is_asked(folder: Path) -> None:
    made, pngs = samples(1)
    _, pieces, _ = one(folder, pages=1, pairs=0.0)
    texts = [
        read_tokenizer(folder / "parent").decode(row.tolist(), skip_special_tokens=False)
        for piece in pieces
        if piece.packed is not None
        for row in piece.packed.tokens
    ]
    policy = VlmPolicy(folder / "parent", POLICY)
    screen = Observation(pngs[made[0].screenshots[-1]], 96, 64, "")
    prompts = [
        prompt_text(policy.family.messages(Context(made[0].instruction, (), screen, 0, thinks=thinks)))
        for thinks in (True, False)
    ]
    assert any(prompt in text for text in texts for prompt in prompts)


def test_a_given_text_is_typed_and_the_only_element_of_a_kind_is_found(folder: Path) -> None:
    tokenizer, made = read_tokenizer(folder / "parent"), samples(1)[0]
    typed, found = set(), set()
    for position in range(0, 40, 2):
        _, pieces, _ = one(folder, 1, position, pairs=0.0, steps=1000, typing=3, kinds=3)
        for piece in pieces:
            assert piece.packed is not None
            for row, segments in zip(piece.packed.tokens, piece.packed.segments, strict=True):
                own = segments[-len(row) :]
                for number in range(1, int(own.max()) + 1):
                    text = tokenizer.decode(row[own == number].tolist(), skip_special_tokens=False)
                    if match := re.search(r"type\(content='(\w+)'\)", text):
                        typed.add(match[1])
                        assert text.count(match[1]) == 2
                    found |= {kind for kind in ("button", "checkbox", "text field") if text.startswith(f"{kind}?")}
    assert len(typed) > 20
    kinds = Counter(element.kind for element in elements_of(made[0]))
    assert found == {kind for kind, count in kinds.items() if count == 1} != set()


@pytest.mark.parametrize("kept", ["letters", "looking", "places", "copying"])
def test_the_gradients_of_the_auxiliary_losses_reach_the_tower(folder: Path, kept: str) -> None:
    def gradient(weight: float) -> torch.Tensor:
        off = dict.fromkeys(("letters", "looking", "places", "copying"), 0.0)
        plan = job(folder, settings={"letters_steps": 0, **off, kept: weight})
        part: Round = next(iter(Rounds(plan, read_pages)))
        made = Learner(plan, part.samples, 0, 1)
        assert isinstance(made.engine, TinyEngine)
        made.gradient(made.engine.ready(made.prepare(refs_of(plan, part.sampler, 2))))
        found = made.engine.net.leaves["model.visual.patch_embed.proj.weight"].grad
        assert found is not None
        return found.clone()

    without, once, twice = gradient(0.0), gradient(1.0), gradient(2.0)
    own = once - without
    assert float(own.norm()) > 0.01 * float(without.norm())
    torch.testing.assert_close(twice - without, 2 * own, rtol=0.1, atol=0.15 * float(own.abs().max()))


def test_a_screen_of_the_first_steps_teaches_letters_alone(folder: Path) -> None:
    net, pieces, _ = one(folder, letters_steps=5)
    assert all(piece.packed is None and not len(piece.targets) for piece in pieces)
    outputs = page_outputs(net, pieces[0])
    assert outputs.screens is not None and outputs.gaze is None and not len(outputs.logprobs)


def test_letters_alone_are_taught_by_windows_with_letters_that_the_tower_sees_as_in_the_whole_picture(
    folder: Path,
) -> None:
    net = TinyNet.load(folder / "parent", torch.float32)
    made, pngs = samples(1)
    maker = batcher(folder, net, pngs, letters_steps=1, shift=0)
    (piece,) = maker.batches(made[:1], [SampleRef(0, 0)], 0)
    assert (piece.grid.rows, piece.grid.columns) == (8, 8) and piece.packed is None
    assert set(range(len(piece.patches))) == set(piece.cells[piece.letters > 0][:, 0].tolist())
    assert float(piece.cell_weights.sum()) == pytest.approx(1.0)
    letters = sum(character in LETTERS for line in lines_of(made[0]) for character in line.text)
    assert int((piece.letters > 0).sum()) <= letters
    torch.testing.assert_close(net.see(piece.patches[1:], piece.grid), net.see(piece.patches, piece.grid)[1:])


def test_edits_are_counted_and_measures_without_counts_are_left_out() -> None:
    assert edits("kitten", "sitting") == 3
    assert edits("", "abc") == edits("abc", "") == 3
    counts = torch.zeros(SHAPE, dtype=torch.float64)
    counts[0, 0, 1] = torch.tensor([3.0, 4.0])
    assert measures_of(counts.flatten()) == {
        "letters_right": 0.75, "letters_right_11px": 0.75, "letters_right_640x480": 0.75,
    }  # fmt: skip


def test_a_name_with_a_line_that_differs_is_not_read(folder: Path) -> None:
    made, pngs = samples(1)
    maker = batcher(folder, TinyNet.load(folder / "parent"), pngs)
    elements = json.loads(made[0].elements)
    elements[0][0] = "other"
    shown = visible_in(maker.whole_view(made[0]), replace(made[0], elements=json.dumps(elements)))
    assert sorted(shown.read) == [1, 2]


@pytest.mark.parametrize("name", ["Send it", "x <|im_end|>yz", "Was it checked?", "100% wait()", "Yes."])
def test_a_head_looks_at_the_letters_of_tokens_of_any_length_and_at_the_last_one(folder: Path, name: str) -> None:
    (first, *_), pngs = samples(1)
    centres = [4.0 + 6 * number for number in range(len(name))]
    element = [name, "button", [0.0, 0.0, 1.0, 0.25], True, None]
    lines = json.dumps([[name, [0, 0, 96, 16], 11, centres]])
    sample = replace(first, elements=json.dumps([element]), states="{}", lines=lines, action="", perceived="[]")
    net, tokenizer = TinyNet.load(folder / "parent", torch.float32), read_tokenizer(folder / "parent")
    maker = batcher(folder, net, pngs, shift=0, pairs=0.0, typing=0, kinds=0)
    (piece,) = maker.batches([sample], [SampleRef(0, 0)], 0)
    assert piece.packed is not None
    looked: dict[int, set[int]] = {}
    for _, column, head, at in piece.gaze.tolist():
        text = tokenizer.decode([int(piece.packed.tokens[0, column])], skip_special_tokens=False)
        if head == POINTS and text in name:
            letters = [place for place in range(len(name)) if name.startswith(text.strip(), place)]
            assert any(int(centres[place]) // 16 == at - net.starts for place in letters)
        looked.setdefault(head, set()).add(at - net.starts)
    assert int(centres[-1]) // 16 in looked[POINTS]
    assert {int(place) // 16 for place, letter in zip(centres, name, strict=True) if letter != " "} >= looked[POINTS]
