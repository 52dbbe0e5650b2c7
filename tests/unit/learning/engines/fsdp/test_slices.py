"""Replies between two folds are one sequence: each a target once, behind the very tokens that it was sampled from."""

from pathlib import Path

import pytest

from learning.data.files import Rollout
from learning.data.sample import Screenshots, write_screenshots
from learning.data.slices import chained, slices
from learning.engines.fsdp.chats import Chats
from learning.engines.fsdp.phases import _targets_of
from models.completion import Completion
from models.families.processor import PromptTokens
from models.families.registry import FAMILIES, family_of
from models.policy import Context
from schemas.action import Wait
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.published import screen, write_directory

STEPS = 45
NAMES = {"qwen3-vl": "qwen3_vl", "qwen2.5-vl": "qwen2_5_vl"}


def rollouts(policy: PolicyConfig, count: int) -> list[Rollout]:
    family = family_of(policy)
    size = (screen(0).width, screen(0).height)
    replies = [family.reply(f"Step {number}.", Wait(), size) for number in range(count)]
    names = [f"screen-{number}" for number in range(count)]
    return [
        Rollout(
            "one", at, "task", tuple(names[family.rule.folded(at + 1) : at + 1]), "Do it.", tuple(replies[:at]), text
        )
        for at, text in enumerate(replies)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_each_target_comes_behind_the_prompt_that_was_read_at_acting(name: str, tmp_path: Path) -> None:
    directory = write_directory(NAMES[name], tmp_path / name)
    policy = PolicyConfig(base=str(directory), family=name, context="fold")
    family = family_of(policy)
    write_screenshots(tmp_path / "screens", {f"screen-{at}": screen(0).png for at in range(STEPS)})
    chats = Chats(directory, policy, Screenshots(tmp_path / "screens"), 0)
    tokens = PromptTokens(chats.processor, family.limits)
    documents = rollouts(policy, STEPS)
    cut = slices(documents, policy.context_rule)
    assert [(members[0] + 1, members[-1] + 1) for members in cut] == [(1, 20), (21, 30), (31, 40), (41, 45)]
    trained = list[int]()
    for members in cut:
        measures, follows = chats.measure_slice([documents[number] for number in members])
        assert [list(one) for one in chained(range(len(members)), follows)] == [list(range(len(members)))]
        made = [measure for measure in measures if measure is not None]
        whole, targets = chats.encode(documents[members[-1]]).ids, _targets_of(made)
        assert len(made[-1].digests) == members[-1] + 1 - policy.context_rule.folded(members[-1] + 1)
        for number, measure in zip(members, made, strict=True):
            begin = measure.item.tokens - measure.targets + 1
            turns = []
            for text in documents[number].past_replies:
                seen = screen(0)
                read = family.read(Completion(text), (seen.width, seen.height))
                turns.append(PastStep(read.thought, read.action_text, Observation(b"", seen.width, seen.height, "")))
            acted = tokens(family.chat(Context("Do it.", tuple(turns), screen(0), 0)))
            assert whole[:begin].tolist() == acted
            assert targets[begin - 1 : measure.item.tokens].tolist() == list(measure.reply)
            trained.append(number)
        assert int((targets >= 0).sum()) == sum(one.targets for one in made)
    assert trained == list(range(STEPS))


@pytest.mark.parametrize(("count", "pictures"), [(35, [20, 20, 15]), (41, [20, 20, 20, 11])])
def test_a_trajectory_is_cut_where_it_folds(count: int, pictures: list[int]) -> None:
    rule = PolicyConfig(context="fold").context_rule
    documents = [Rollout("one", at, "task", (), "", ("",) * at, "") for at in range(count)]
    cut = slices(documents, rule)
    assert [rule.shown(members[-1] + 1) for members in cut] == pictures
    assert sorted(number for members in cut for number in members) == list(range(count))
    assert len(slices(documents, PolicyConfig(history_images=20).context_rule)) == count


def test_a_document_that_begins_otherwise_gets_a_sequence_of_its_own() -> None:
    assert chained([0, 1, 2, 3], {1: 0, 3: 1}) == [[0, 1, 3], [2]]
    assert chained([0, 3, 0], {1: 0, 3: 1}) == [[0, 1], [2]]


@pytest.mark.parametrize("name", ["glm", "opencua", "ui-venus-2", "step-gui", "internvl", "scalecua", "holo-1.5"])
def test_a_family_that_cannot_fold_is_refused_by_name(name: str) -> None:
    kind = FAMILIES.class_of(name)
    with pytest.raises(UsageError, match=rf"policy\.context.*{name}"):
        kind(PolicyConfig.model_validate({"family": name, "context": "fold", "template": kind.templates[0]}))
