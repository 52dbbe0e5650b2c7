"""Random tiny Qwen3.5 models that learn a folded task of the fake sandbox in minutes: the checkpoint and the config.

The task `moving` takes four clicks, and its prompt folds at the fourth screen.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from transformers import AutoTokenizer

from environments.fake import COLOURS, HEIGHT, WIDTH
from flows.flywheel import flywheel
from models.completion import Completion
from models.explorer import PageExplorer
from models.families.dialects import format_actions, format_reply
from models.families.prompt import Message
from models.families.qwen35 import Qwen35Family
from models.policy import Context
from models.random_vlm import Kind, build_random
from models.thoughts import templated_thought
from schemas.action import Click, Move
from schemas.config import Config, config_of
from schemas.config.policy import PolicyConfig
from schemas.observation import Observation, PastStep
from schemas.tables.policy import PolicyVersion
from storage.lake import Lake
from tasks.measure import measured
from tasks.promote.promote import roll_back
from tasks.shared.policies import champion, policies
from tasks.shared.status import success_of
from tasks.shared.weights import load_policy

POLICY: dict[str, Any] = {
    "family": "qwen3.5",
    "context": "fold",
    "live_images": 3,
    "fold_images": 2,
    "max_new_tokens": 24,
    "batch": 32,
}
SCREEN = (WIDTH, HEIGHT)
TEST_SEEDS = (2_000_000, 2_000_100)
AGREES = 1e-4
"""Difference of the log probabilities of actor and trainer, in nats, in fp32."""


class PointingExplorer(PageExplorer):
    """Points at a place before it clicks there, with both actions in one reply."""

    version = "pointing-explorer-1"

    def _completion(self, context: Context) -> Completion:
        found = super()._completion(context)
        if not isinstance(found.first, Click):
            return found
        actions = (Move(x=found.first.x, y=found.first.y), found.first)
        text = format_actions(actions, self.dialect)
        return replace(found, text=format_reply("", text), action_text=text, actions=actions)


def build_tiny_qwen(kind: Kind, folder: Path, seed: int = 0, pointing: bool = False) -> None:
    """Writes a random checkpoint in fp32 whose tokeniser knows the task's phrases; coordinates are single digits.

    Args:
        pointing: whether the replies are those of a `PointingExplorer`.
    """
    family = Qwen35Family(PolicyConfig.model_validate(POLICY))
    seen = Observation(b"", *SCREEN, "")
    past = (PastStep("", "", seen),) * 4
    chats = [family.messages(Context(f'Click the "{colour}" button four times.', past, seen, 0)) for colour in COLOURS]
    asked = [text_of(message) for chat in chats for message in chat if message["role"] != "assistant"]
    places = iter(range(103, 999, 7))  # no number occurs twice, so none becomes a word
    kinds: list[type[Move | Click]] = [Move, Click] if pointing else [Click]
    acts = [[one(x=next(places) / 999, y=next(places) / 999) for one in kinds] for _ in range(20)]
    thoughts = ("", templated_thought(acts[0][0])) * 10
    replies = [family.reply(thought, one, SCREEN) for thought, one in zip(thoughts, acts, strict=True)]
    sizes = {"head_width": 32, "vocabulary": 1024}
    build_random(kind, asked * 8 + replies, seed, folder, **sizes, spread=0.1, theta=100.0, dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([AddedToken(asked[0], normalized=False)])  # the system text as one token
    tokenizer.save_pretrained(folder)


def text_of(message: Message) -> str:
    """The text of a turn, without its screens."""
    return "".join(part["text"] for part in message["content"] if part["type"] == "text")


def learning(small: Config, base: Path, steps: int = 24, pointing: bool = False) -> Config:
    """The config of a first training on the explorer's successes, with so many steps.

    Args:
        pointing: whether the explorer is a `PointingExplorer`.
    """
    fields = small.model_dump()
    fields["environments"]["fake"]["sandboxes"] = 64
    fields["suite"]["tasks"] = ("moving",)
    fields["collect"] = {"trajectories_per_task": 100, "policy_share": 0.0}
    fields["policy"] = {**POLICY, "base": str(base)}
    if pointing:
        fields["collect"]["explorer"] = f"{PointingExplorer.__module__}:{PointingExplorer.__name__}"
        fields["policy"]["max_new_tokens"] = 32
    fields["train"] = {"steps": steps, "learning_rate": 3e-3, "batch": 8, "processes": 1, "warmup": 5, "decay": 0.3}
    fields["evaluate"] |= {"seeds": 60, "explorer_seeds": 1, "untrained_seeds": 1}
    return config_of(fields)


def further(config: Config, steps: int) -> Config:
    """The config of a further training of the same kind, so short that success does not rise from 0 to 1 in it."""
    fields = config.model_dump()
    fields["train"] |= {"steps": steps, "learning_rate": 1.5e-3, "warmup": 1}
    return config_of(fields)


def in_groups(config: Config, **group: Any) -> Config:
    """The config of trainings on groups; actor and trainer must agree to within `AGREES`."""
    fields = config.model_dump()
    given = {"groups": 24, "size": 8, "epochs": 2, "batch": 64, "learning_rate": 6e-4, "highest": 0.95}
    limit = {} if group.get("recompute") else {"most_mismatch": AGREES}
    fields["train"] |= {"method": "grpo", "group": {**given, **limit, **group}}
    return config_of(fields)


def success(lake: Lake) -> float:
    """The success of the champion on the validation seeds."""
    found = success_of(lake, champion(lake).policy_version)
    assert found is not None
    print(champion(lake).policy_version, found)  # for docs/log.md
    return found.success


def on_test_seeds(config: Config) -> float:
    """The success of the champion, generated by this process, on test seeds."""
    found = measured(config, load_policy(config, Lake.open(config.lake), "champion"), None, TEST_SEEDS).rates.success
    assert found is not None
    print("test seeds", found)  # for docs/log.md
    return found


def imitate(config: Config, enough: float = 0.3, most: float = 0.9) -> float:
    """Trains on the explorer's successes until the policy has enough success, but leaves something to learn in groups;
    returns the success. A training that goes too far is rolled back, and repeated with half of the steps."""
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    found, steps = success(lake), 4
    while not enough <= found <= most:
        if found > most:
            roll_back(lake, None, "it leaves nothing to learn in groups")
            found, steps = success(lake), max(1, steps // 2)
        before = found
        flywheel(further(config, steps), iterations=1)
        found = success(lake)
        if found <= before:  # the champion stays
            steps = min(2 * steps, 16)
    return found


def improve(config: Config, enough: float = 0.8, rounds: int = 10) -> list[PolicyVersion]:
    """Trains in rounds of groups, at least one, until the champion has enough success; returns the trained policies."""
    lake = Lake.open(config.lake)
    for _ in range(rounds):
        flywheel(config, iterations=1)
        if success(lake) >= enough:
            break
    return [row for row in policies(lake).values() if row.method == "grpo"]
