"""The training of a base: it learns letters, resumes bit for bit, and measures on held-out pages alone."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learning import trainer
from learning.algorithms.pretrain import BasePretraining
from learning.data.pages import PageSample
from learning.engines.tiny.engine import TinyEngine
from learning.trainer import train
from models.policy import Context
from models.tiny.generator import read_tokenizer
from models.tiny.network import Grid, TinyNet, pack, visible
from models.vlm import VlmPolicy
from schemas.config.policy import BASE
from schemas.observation import Observation
from tests.drawn import POLICY, job, parent, samples
from tests.system.parts.trainings import trained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    parent(tmp_path)
    return tmp_path


def test_letters_of_drawn_text_are_learnt_in_seconds(folder: Path) -> None:
    settings = {"steps": 320, "letters_steps": 319, "batch": 8, "validate_every": 1000}
    plan = job(folder, pages=80, settings=settings, shift=2)
    train(plan)
    found = json.loads((plan.out / "trained.json").read_text())["numbers"]
    assert found["letters_right_11px"] > 0.15  # the most frequent letter of the syllables: 2 of 25


def test_a_killed_training_resumes_with_the_losses_it_would_have_had(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses(out: str, end: int | None = None) -> list[float]:
        found: list[float] = []
        make = trainer.Learner.step

        def step(self: trainer.Learner, prepared: object, rate: float) -> trainer.StepResult:
            if len(found) == end:
                raise KeyboardInterrupt
            result = make(self, prepared, rate)
            found.append(float(result.loss))
            return result

        with monkeypatch.context() as patched:
            patched.setattr(trainer.Learner, "step", step)
            plan = job(folder, settings={"steps": 8, "letters_steps": 3}, checkpoint_every=2)
            plan = plan.model_copy(update={"out": folder / out})
            if end is None:
                train(plan)
            else:
                with pytest.raises(KeyboardInterrupt):
                    train(plan)
        return found

    whole, first, rest = losses("whole"), losses("killed", 5), losses("killed")
    assert len(rest) == 4 and first == whole[:5] and rest == whole[4:]
    one, other = (load_file(folder / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_two_processes_train_the_base_that_one_trains(folder: Path, forked: None) -> None:
    settings = {"steps": 3, "letters_steps": 1, "batch": 4}
    alone = job(folder, settings=settings)
    both = alone.model_copy(update={"out": folder / "both", "train": alone.train.model_copy(update={"processes": 2})})
    train(alone)
    trained(both)
    one, two = (load_file(plan.out / "model.safetensors") for plan in (alone, both))
    start = load_file(alone.parent / "model.safetensors")
    moved = sum(float((one[name] - start[name]).float().abs().sum()) for name in one)
    apart = sum(float((one[name] - two[name]).float().abs().sum()) for name in one)
    assert apart < 0.1 * moved
    measures = [json.loads((plan.out / "trained.json").read_text())["numbers"] for plan in (alone, both)]
    assert measures[0].keys() == measures[1].keys()


def test_held_out_pages_alone_are_measured_and_never_trained_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[PageSample] = []
    examine = TinyEngine.examine

    def look(self: TinyEngine, letters: object, samples: list[PageSample]) -> torch.Tensor:
        examined.extend(samples)
        return examine(self, letters, samples)  # type: ignore[arg-type]

    monkeypatch.setattr(TinyEngine, "examine", look)
    plan = job(folder)
    plan = plan.model_copy(update={"trace": folder / "trace"})
    train(plan)
    assert {sample.split for sample in examined} == {"validation"}
    assert len(examined) == 2 * 4  # after step 3, and at the end
    drawn = [json.loads(line)["samples"] for line in (folder / "trace" / "rank-0.jsonl").read_text().splitlines()]
    assert max(number for step in drawn for number in step) < 8  # eight screens are of the split `train`


def test_a_measurement_is_no_part_of_a_step_whose_time_is_limited(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[str] = []
    monkeypatch.setattr(trainer.HeartbeatThread, "rest", lambda _, doing: marked.append(doing))
    monkeypatch.setattr(trainer.HeartbeatThread, "step", lambda _, step: marked.append(f"step {step}"))
    train(job(folder))
    before = [marked[at - 1] for at, one in enumerate(marked) if one == "measuring held-out pages"]
    assert before == ["step 3", "step 6"]


@pytest.mark.parametrize("shipped", [False, True])
def test_plain_transformers_reads_a_base_with_the_same_logits_and_the_policy_acts(folder: Path, shipped: bool) -> None:
    from transformers import AutoModelForImageTextToText

    plan = job(folder)
    if not shipped:
        train(plan)
    base = BASE if shipped else plan.out
    stock = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32)
    net = TinyNet.load(base, torch.float32)
    grid, count = Grid(16, 24), 24
    patches = torch.randn(1, 16 * 24, 3 * 4 * 4, generator=torch.Generator().manual_seed(0))
    text = torch.tensor([[*read_tokenizer(base).encode('Check "kalo".').ids]])
    packed = pack([text.tolist()], (4, 6), 1, 0, net.starts)
    lead = net.lead(net.see(patches, grid), 1)
    mask = visible(packed.segments, net.dtype, lead.shape[1])
    hidden = net.read_after(lead, net.embed(packed.tokens), packed.positions, mask).hidden
    start = net.config["vision_start_token_id"]
    ids = torch.cat([torch.tensor([[start, *[net.image_token] * count]]), text], dim=1)
    kinds = (ids == net.image_token).int()
    expected = stock(
        input_ids=ids, pixel_values=patches[0], image_grid_thw=torch.tensor([[1, 16, 24]]), mm_token_type_ids=kinds
    ).logits[:, 1 + count :]
    torch.testing.assert_close(net.logits(hidden)[:, : text.shape[1]], expected, rtol=1e-3, atol=1e-3)
    made, pngs = samples(1)
    screen = Observation(pngs[made[0].screenshots[-1]], 96, 64, "")
    (reply,) = VlmPolicy(base, POLICY).act([Context(made[0].instruction, (), screen, 0)])
    assert isinstance(reply.text, str)


def test_the_base_of_the_package_is_small_and_says_nothing_of_the_machine_that_made_it() -> None:
    files = {file.name: file.read_bytes() for file in BASE.iterdir()}
    assert len(files["model.safetensors"]) < 16 * 2**20
    assert TinyNet.load(BASE).flat.numel() < 8_000_000
    assert {"README.md", "config.json", "tokenizer.json"} < files.keys() and "job.json" not in files
    assert not any(path in text for text in files.values() for path in (b"/home/", b"/root/", b"/work/", b"/tmp/"))


def test_the_letter_head_is_in_the_training_s_state_and_not_in_the_policy(folder: Path) -> None:
    plan = job(folder)
    train(plan)
    assert load_file(plan.out / "model.safetensors").keys() == load_file(plan.parent / "model.safetensors").keys()
    engine = TinyEngine(plan, 0, 1)
    assert "head.weight" in BasePretraining(plan, engine).state()
