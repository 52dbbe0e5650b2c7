"""An export in ATIF holds the tokens of every prompt that a policy read, or the reason why it does not."""

import asyncio
import io
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from curation.converters.format import FORMATS
from curation.redaction import Redactor
from environments.fake import FakeSandbox
from environments.pool import SandboxPool
from models.completion import Completion
from models.families.prompt import Message
from models.families.registry import family_of
from models.random_vlm import build_random
from models.tiny.build import build_tiny
from models.tiny.generator import EncodedPrompt, TinyModel
from models.vlm import VlmPolicy
from rollout.actor import Actor
from rollout.replies import Overseen, by_person
from rollout.session import roll_out
from rollout.trajectory import Beginning, PlannedTrajectory
from schemas.action import Wait
from schemas.config import Config, config_of
from schemas.observation import Observation
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.collect.collect import write
from tasks.exchange.export import export_trajectories
from tasks.exchange.importing import Request, _import_records  # pyright: ignore[reportPrivateUsage]
from tasks.running.run import Run
from tasks.shared.policies import PolicyRecipe, register
from tests.fixtures.sentences import Sentences
from tests.parts import FAKE
from tests.unit.models.test_vlm import TEXTS

VERSION = "policy-initial"
OUTSIDE = "A page says <|im_end|><|image_pad|> <tool_call>."
SMALL = {"hidden": 64, "layers": 2, "vision_hidden": 64, "vision_layers": 2, "max_new_tokens": 6}
QWEN = {"family": "thousandths", "history_images": 2, "device": "cpu"}


@dataclass
class Place:
    """A lake with one policy, and what the policy read at each step."""

    lake: Lake
    config: Config
    directory: Path
    read: list[list[int]]

    @property
    def checkpoint(self) -> Path:
        return Path(self.lake.blobs.store.path(f"checkpoints/{VERSION}"))

    def export(self, to: Path, redactor: Redactor | None = None, config: Config | None = None) -> "Exported":
        form = FORMATS.class_of("atif")()
        export_trajectories(config or self.config, self.lake, form, to, redactor=redactor)
        files = sorted((to / "trajectories").iterdir())
        steps = [step for file in files for step in json.loads(file.read_text())["steps"] if step["source"] == "agent"]
        return Exported([step.get("metrics", {}).get("prompt_token_ids") for step in steps], steps, form.notes)


@dataclass
class Exported:
    """What an export holds of each step."""

    prompts: list[list[int] | None]
    steps: list[dict[str, Any]]
    notes: list[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}
    folder = tmp_path_factory.mktemp("built")

    def build(kind: str) -> Path:
        if kind not in made:
            made[kind] = folder / kind
            if kind == "tiny":
                build_tiny(config_of({"policy": SMALL, "suite": {"tasks": ["two-steps"]}}).policy, TEXTS, 0, made[kind])
            else:
                build_random("qwen3_vl", TEXTS, 0, made[kind])
        return made[kind]

    return build


def place_of(directory: Path, folder: Path, kind: str, **policy: Any) -> Place:
    """A lake whose policy a directory is, and nothing else."""
    base = {} if kind == "tiny" else {"base": str(directory)}
    fields = {
        "lake": {"uri": str(folder / "lake"), "min_free_mb": 1},
        "environments": {"fake": {}},
        "suite": {"tasks": ["three-steps"]},
        "policy": {**(SMALL if kind == "tiny" else QWEN), **base, **policy},
    }
    config = config_of(fields)
    lake = Lake.open(config.lake)
    checkpoint = lake.blobs.put_directory(directory, f"checkpoints/{VERSION}")
    register(lake, config, PolicyRecipe(VERSION, "", -1, {}, "initial"), "random", checkpoint, {}, 0)
    return Place(lake, config, directory, [])


def told(text: str) -> Completion:
    """A reply of this text, its tokens made up."""
    return Completion(text, (5, 7, 9), (-0.5, -0.25, 0.0))


def policy_of(place: Place, replies: Sequence[str]) -> VlmPolicy:
    """The policy, with these replies in the place of its own; what its network is given is noted."""
    policy, left = VlmPolicy(place.directory, place.config.policy, VERSION), list(replies)
    model: Any = policy.model
    if isinstance(model, TinyModel):

        def decode(seen: Any, prompts: list[EncodedPrompt], *rest: Any) -> list[Completion]:
            for row, prompt in zip(seen, prompts, strict=True):
                place.read.append([model.net.image_token] * row.shape[0] + prompt.ids)
            return [told(left.pop(0)) for _ in prompts]

        vars(model)["_decode"] = decode
    else:

        def generate(chats: Sequence[Sequence[Message]], *_: Any) -> list[Completion]:
            made = model._inputs(chats)
            rows = zip(made["input_ids"].tolist(), made["attention_mask"].tolist(), strict=True)
            place.read += [[token for token, held in zip(*row, strict=True) if held] for row in rows]
            return [told(left.pop(0)) for _ in chats]

        vars(model)["generate"] = generate
    return policy


def planned(**more: Any) -> PlannedTrajectory:
    return PlannedTrajectory("lake", "run", 0, FAKE.task("three-steps"), 5, "policy", VERSION, **more)


def collect(place: Place, acts: Any, one: PlannedTrajectory, asked: Any = None) -> list[Step]:
    """Rolls a trajectory out as collecting does, and stores it."""
    policy = place.config.policy
    asked = policy.asked if asked is None else asked

    async def rolled() -> Any:
        async with SandboxPool([FAKE]) as pool:
            return await roll_out(pool, one, [acts], True, policy.context_rule, asked)

    record = asyncio.run(rolled())
    write(place.lake, [record])
    return record.steps


def replies_of(place: Place, *thoughts: str) -> list[str]:
    """Replies that wait, as the policy's family writes them."""
    family = family_of(place.config.policy, place.directory)
    return [family.reply(thought, [Wait()], (160, 210)) for thought in thoughts]


def acted(place: Place, *thoughts: str, **more: Any) -> list[Step]:
    with Actor(policy_of(place, replies_of(place, *thoughts)), 1.0) as actor:
        return collect(place, actor, planned(**more))


def of_two_sizes() -> Any:
    """What a sandbox shows, every other time on a larger screen."""
    observe, turns = FakeSandbox._observe, count()

    async def observed(sandbox: FakeSandbox, elements: bool) -> Observation:
        seen = await observe(sandbox, elements)
        if next(turns) % 2:
            return seen
        out = io.BytesIO()
        Image.open(io.BytesIO(seen.png)).resize((320, 280)).save(out, "PNG")
        return replace(seen, png=out.getvalue(), width=320, height=280)

    return observed


THOUGHTS = ("First.", OUTSIDE, "Third.", "Fourth.", "Fifth.")


FOLD = {"context": "fold", "live_images": 3, "fold_images": 2, "history_images": 1}
ASKED = [
    ("tiny", {}),
    ("tiny", {"history_images": 3}),
    ("tiny", {"backend": "transformers"}),
    ("qwen3_vl", {}),
    ("qwen3_vl", {"history_turns": 2, "older": "summarised"}),
    ("qwen3_vl", {"family": "qwen3-vl", "history_images": 3}),
    ("qwen3_vl", {"family": "pixels"}),
    ("tiny", FOLD),
    ("qwen3_vl", {"family": "qwen3-vl", **FOLD}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "policy"), ASKED, ids=str)
def test_the_prompts_of_an_export_are_the_tokens_that_the_policy_read(
    built: Callable[[str], Path], tmp_path: Path, kind: str, policy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSandbox, "_observe", of_two_sizes())
    place = place_of(built(kind), tmp_path, kind, **policy)
    steps = acted(place, *THOUGHTS)
    assert [step.thought for step in steps] == list(THOUGHTS)
    found = place.export(tmp_path / "out")
    assert found.prompts == place.read and len(place.read) == 5 and found.notes == []
    assert len({len(ids) for ids in place.read}) > 1
    for step, ids in zip(found.steps, place.read, strict=True):
        assert step["metrics"]["prompt_tokens"] == len(ids)
        assert step["metrics"]["completion_token_ids"] == [5, 7, 9]


def test_a_policy_without_thoughts_is_exported_as_it_was_asked(built: Callable[[str], Path], tmp_path: Path) -> None:
    place = place_of(built("tiny"), tmp_path, "tiny", thoughts=False)
    acted(place, *[""] * 5)
    assert place.export(tmp_path / "out").prompts == place.read


def test_what_the_trajectory_says_counts_and_not_the_config_of_the_export(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    place = place_of(built("qwen3_vl"), tmp_path, "qwen3_vl")
    acted(place, *THOUGHTS)
    fields = json.loads(place.config.canonical())
    later = config_of({**fields, "policy": {**fields["policy"], "history_images": 4, "thoughts": False}})
    assert place.export(tmp_path / "out", config=later).prompts == place.read


def test_a_checkpoint_s_tokenizer_is_read_once_and_its_weights_never(
    built: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(built("qwen3_vl"), tmp_path, "qwen3_vl")
    acted(place, *THOUGHTS)
    acted(place, *THOUGHTS, attempt=1)
    (place.checkpoint / "model.safetensors").unlink()
    from tasks.exchange import prompts

    loads, read = list[Path](), prompts.read_processor
    monkeypatch.setattr(prompts, "read_processor", lambda folder: loads.append(folder) or read(folder))
    found = place.export(tmp_path / "out")
    assert sorted(found.prompts, key=str) == sorted(place.read, key=str) and len(found.prompts) == 10
    assert len(loads) == 1


def test_a_checkpoint_that_is_gone_is_reported_with_its_policy_and_the_number_of_steps(
    built: Callable[[str], Path], tmp_path: Path, sentence: Sentences
) -> None:
    place = place_of(built("tiny"), tmp_path, "tiny")
    acted(place, *THOUGHTS)
    shutil.rmtree(place.checkpoint)
    found = place.export(tmp_path / "out")
    assert found.prompts == [None] * 5
    (note,) = found.notes
    assert note.startswith(f"5 steps without `prompt_token_ids`: the checkpoint of {VERSION} is not there: ")
    assert [step["metrics"]["completion_tokens"] for step in found.steps] == [3] * 5
    place.lake.delete("policies", f"policy_version = '{VERSION}'")
    (note,) = place.export(tmp_path / "again").notes
    sentence(note, "prompt_token_ids", VERSION)


def test_weights_that_were_renewed_within_an_iteration_have_the_tokenizer_of_their_candidate_or_its_parent(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    place = place_of(built("tiny"), tmp_path, "tiny")
    policy = policy_of(place, replies_of(place, *THOUGHTS))
    policy.version = "policy-0001+3"
    with Actor(policy, 1.0) as actor:
        steps = collect(place, actor, planned())
    assert {step.policy_version for step in steps} == {"policy-0001+3"}
    assert place.export(tmp_path / "out").prompts == place.read


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "their trajectories do not record how the policy was asked"),
        ({"backend": "mine.model:Mine"}, "the custom backend mine.model:Mine read them"),
        ({"template": "mobile"}, f"the checkpoint of {VERSION} cannot be read: `policy.template` is mobile"),
    ],
)
def test_a_prompt_of_which_too_little_is_known_is_left_out_and_reported(
    built: Callable[[str], Path], tmp_path: Path, asked: dict[str, Any], why: str
) -> None:
    place = place_of(built("tiny"), tmp_path, "tiny")
    with Actor(policy_of(place, replies_of(place, *THOUGHTS)), 1.0) as actor:
        collect(place, actor, planned(), {**place.config.policy.asked, **asked} if asked else {})
    found = place.export(tmp_path / "out")
    (note,) = found.notes
    assert found.prompts == [None] * 5 and note.startswith(f"5 steps without `prompt_token_ids`: {why}")


def test_after_a_step_of_a_person_prompts_are_left_out_and_reported(
    built: Callable[[str], Path], tmp_path: Path, sentence: Sentences
) -> None:
    place = place_of(built("tiny"), tmp_path, "tiny")
    proposed = list[Completion]()

    async def decide(_: Any, proposal: Completion) -> Completion:
        proposed.append(proposal)
        return by_person("ada", "Mine.", Wait(), "box_v1") if len(proposed) == 3 else proposal

    with Actor(policy_of(place, replies_of(place, *THOUGHTS)), 1.0) as actor:
        steps = collect(place, Overseen(actor, decide), planned())
    assert [step.actor for step in steps] == ["policy", "policy", "person", "policy", "policy"]
    found = place.export(tmp_path / "out")
    assert found.prompts == [*place.read[:2], None, None, None]
    sentence("\n".join(found.notes))


def test_prompts_of_what_goes_on_from_replayed_steps_are_left_out_and_reported(
    built: Callable[[str], Path], tmp_path: Path, sentence: Sentences
) -> None:
    place = place_of(built("tiny"), tmp_path, "tiny")
    first = acted(place, *THOUGHTS)[0]
    acted(place, *THOUGHTS, attempt=1, beginning=Beginning("other", (first.screenshot,), (), ahead=5))
    found = place.export(tmp_path / "out")
    assert sum(ids is None for ids in found.prompts) == 5
    sentence("\n".join(found.notes))


def test_no_prompt_that_holds_what_is_redacted_is_exported(built: Callable[[str], Path], tmp_path: Path) -> None:
    place = place_of(built("tiny"), tmp_path, "tiny")
    acted(place, "First.", "Second.", "Write ann@example.com.", "Fourth.", "Fifth.")
    found = place.export(tmp_path / "out", Redactor())
    assert found.prompts == [*place.read[:2], None, None, None]
    kept = [step.get("metrics", {}).get("completion_token_ids") for step in found.steps]
    assert kept == [[5, 7, 9], [5, 7, 9], None, [5, 7, 9], [5, 7, 9]]
    assert place.export(tmp_path / "whole").prompts == place.read


def test_no_other_format_waits_for_prompts(built: Callable[[str], Path], tmp_path: Path) -> None:
    place = place_of(built("tiny"), tmp_path, "tiny")
    acted(place, *THOUGHTS)
    shutil.rmtree(place.checkpoint)
    form = FORMATS.class_of("agentnet")()
    export_trajectories(place.config, place.lake, form, tmp_path / "out")
    assert form.notes == []


@pytest.mark.slow
def test_an_import_of_an_export_keeps_what_it_kept_and_no_tokens(built: Callable[[str], Path], tmp_path: Path) -> None:
    place = place_of(built("tiny"), tmp_path / "a", "tiny")
    acted(place, *THOUGHTS)
    place.export(tmp_path / "with")
    shutil.rmtree(place.checkpoint)
    place.export(tmp_path / "without")
    fields = json.loads(place.config.canonical())
    kept = []
    for name in ("with", "without"):
        config = config_of({**fields, "lake": {"uri": str(tmp_path / f"lake-{name}"), "min_free_mb": 1}})
        lake = Lake.open(config.lake)
        _import_records(Run(config, lake, "run"), -2, Request(format="atif", path=tmp_path / name), "import:atif:0123")
        (trajectory,) = lake.rows(Trajectory)
        steps = sorted(lake.rows(Step), key=lambda step: step.step)
        assert [step.token_ids for step in steps] == [None] * 5
        kept.append([one.model_dump(exclude={"trajectory_id"}) for one in (trajectory, *steps)])
        again = Place(lake, config, place.directory, []).export(tmp_path / f"again-{name}")
        assert again.prompts == [None] * 5 and again.notes == []
    assert kept[0] == kept[1] and len(kept[0]) == 6
