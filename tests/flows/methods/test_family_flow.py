"""A family from outside: a model is asked, read and trained in its words alone, by every kind of method."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.flywheel import flywheel
from learning.algorithms.dpo import sides_of
from learning.algorithms.method import DataSource, method_of
from learning.data.documents import Document, visible_screens
from learning.data.sample import Screenshots
from learning.data.slices import slices
from learning.engines.fsdp.chats import Chats
from models.families.dialects import parse_reply
from models.random_vlm import build_random
from schemas.action import from_json_list
from schemas.config import Config, config_of
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import champion
from tasks.train.train import MATERIAL, job_of, pins_of
from tests.clicker import clicked
from tests.flows.conftest import wheel
from tests.flows.methods.test_group_flow import sometimes
from tests.taps import Taps
from tests.tiers import NIGHTLY

pytestmark = pytest.mark.slow


OURS = re.compile(r"Action:|start_box|Thought:")


@pytest.fixture(scope="module", params=("qwen3_vl", "qwen3_5", "qwen3_5_moe") if NIGHTLY else ("qwen3_vl",))
def turned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Config]:
    """Two iterations of a model of such a family: from the explorer, then in groups."""
    folder = tmp_path_factory.mktemp("taps")
    with pytest.MonkeyPatch.context() as patch:
        small = wheel(folder, patch)
        build_random(request.param, ["Click on the target."] * 8, 0, folder / "base")
        fields = small.model_dump()
        fields["policy"] |= {"base": str(folder / "base"), "family": "tests.taps:Taps", "max_new_tokens": 4}
        fields["suite"]["tasks"] = ("click-target", "two-steps")
        fields["train"] |= {"steps": 1, "batch": 2, "steps_first": TrainConfig().steps_first}
        flywheel(config_of(fields), iterations=1)
        lake = Lake.open(small.lake)
        sometimes(lake, "fake/click-target", champion(lake).policy_version)
        group = {"groups": 6, "size": 4, "k": 2, "batch": 4, "inject": True}
        fields["train"] |= {"method": "grpo", "group": group}
        config = clicked(config_of(fields), 0.2)
        flywheel(config, iterations=1)
        yield config


def material(config: Config, folder: Path, method: str) -> tuple[Lake, list[Any], Chats]:
    """What a method is handed from the lake, and who encodes it."""
    lake = Lake.open(config.lake)
    train = config.train.model_copy(update={"method": method, "steps": 50, "batch": 8})  # each sample comes
    config = config.model_copy(update={"train": train})
    recipe = PolicyRecipe("policy-0009", "policy-0000", 1, pins_of(lake))
    chosen = method_of(config.train)
    job = job_of(config, lake, recipe, folder, MATERIAL[DataSource(chosen.source)](config, lake, recipe))
    chats = Chats(job.parent, job.policy, Screenshots(job.screenshots), job.seed)
    return lake, list(chosen.read(job.samples)), chats


def trained_on(chats: Chats, document: Document) -> tuple[str, str]:
    """The chat and the targets, as text."""
    chat = chats.encode(document)
    decode = chats.processor.tokenizer.decode
    targets = [token for token in chat.targets.tolist() if token >= 0]
    return decode(chat.ids), decode(targets, skip_special_tokens=True)


def written(step: dict[str, Any], thought: str) -> str:
    """A stored step as the family writes it."""
    return Taps(PolicyConfig()).reply(
        thought, from_json_list(step["actions"]), (step["screen_width"], step["screen_height"])
    )


def steps_of(lake: Lake) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["trajectory_id"], row["step"]): row for row in lake.read("steps").to_pylist()}


def test_the_policy_acts_in_its_familys_words(turned: Config) -> None:
    acted = [row for row in Lake.open(turned.lake).read("steps").to_pylist() if row["policy_version"] == "policy-0000"]
    clicks = [row for row in acted if row["iteration"] == 1]
    assert clicks and all(re.fullmatch(r"<think></think>tap \d+/64 \d+/64", row["raw_text"]) for row in clicks)
    assert all(from_json_list(row["actions"])[0].type == "click" for row in clicks)


def test_supervised_targets_are_the_stored_actions_as_the_family_writes_them(turned: Config, tmp_path: Path) -> None:
    lake, samples, chats = material(turned, tmp_path, "sft")
    stored = {(row["screenshot"], tuple(row["actions"])) for row in steps_of(lake).values()}
    imitated = [sample for sample in samples if sample.actions]
    assert imitated and any(sample.history for sample in imitated)
    for sample in imitated:
        assert (sample.screenshots[-1], sample.actions) in stored
        chat, targets = trained_on(chats, sample)
        step = {"actions": sample.actions, "screen_width": 1, "screen_height": 1}
        assert targets == written(step, sample.thought)
        for past in sample.history:
            assert written(step | {"actions": past.actions}, past.thought) in chat
        assert not OURS.search(chat)


def test_a_lake_whose_prompts_slid_is_trained_on_in_slices_by_every_method(turned: Config, tmp_path: Path) -> None:
    fields = turned.model_dump()
    fields["policy"] |= {"context": "fold", "history_images": 1, "family": "thousandths"}
    config = config_of(fields)
    rule = config.policy.context_rule
    for method in ("sft", "grpo", "ppo"):
        (folder := tmp_path / method).mkdir()
        _, samples, chats = material(config, folder, method)
        read = method_of(config.train.model_copy(update={"method": method})).read(folder / "samples.arrow")
        cut = slices(read, rule)
        assert sorted(number for members in cut for number in members) == list(range(len(samples)))
        assert any(len(members) > 1 for members in cut), method
        for members in cut:
            assert [len(visible_screens(samples[one], rule)) for one in members] == list(range(1, len(members) + 1))
            chats.measure_slice([samples[one] for one in members])
    (folder := tmp_path / "dpo").mkdir()
    assert material(config, folder, "dpo")[1]


def test_preferred_and_rejected_replies_are_the_stored_actions_as_the_family_writes_them(
    turned: Config, tmp_path: Path
) -> None:
    lake, preferences, chats = material(turned, tmp_path, "dpo")
    steps, pairs = steps_of(lake), {row["pair_id"]: row for row in lake.read("pairs").to_pylist()}
    assert preferences and len(preferences) == len(pairs)
    for preference in preferences:
        pair = pairs[preference.pair_id]
        for side, trajectory in (("chosen", pair["trajectory_id"]), ("rejected", pair["rejected_trajectory_id"])):
            thought = parse_reply(pair[side]).thought
            assert getattr(preference, side) == written(steps[trajectory, pair["step"]], thought)
        for document in sides_of(preference):
            chat, targets = trained_on(chats, document)
            assert targets == document.reply and not OURS.search(chat)


def test_group_replies_are_as_drawn_and_a_stored_success_is_as_the_family_writes_it(
    turned: Config, tmp_path: Path
) -> None:
    lake, rollouts, chats = material(turned, tmp_path, "grpo")
    steps = steps_of(lake)
    drawn = [rollout for rollout in rollouts if rollout.token_ids]
    injected = [rollout for rollout in rollouts if not rollout.token_ids]
    assert drawn and injected
    for rollout in rollouts:
        step = steps[rollout.trajectory_id, rollout.step]
        chat, targets = trained_on(chats, rollout)
        assert targets == rollout.reply and not OURS.search(chat)
        if rollout.token_ids:
            assert rollout.reply == step["raw_text"] == written(step, "")
        else:
            assert re.fullmatch(r"<think>.*</think>tap \d+/64 \d+/64", rollout.reply)
            assert rollout.reply.endswith(Taps(PolicyConfig()).write_actions(from_json_list(step["actions"]), (1, 1)))


def test_every_reply_of_a_model_is_recorded_with_its_family(turned: Config) -> None:
    rows = Lake.open(turned.lake).read("steps", ["actor", "family"]).to_pylist()
    families = {(row["actor"], row["family"]) for row in rows}
    assert families == {("policy", "tests.taps:Taps"), ("explorer", None)}
