"""Every family: what it writes it reads, what a model may say never raises, and what does not fit is refused."""

import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.completion import Completion
from models.families.dialects import parse_reply
from models.families.family import ModelFamily
from models.families.fara import Fara7Family
from models.families.prompt import Message
from models.families.registry import FAMILIES, family_of, name_of, reply_limit
from models.families.screen import ImageLimits
from models.language_model import LanguageModel
from models.policy import Context
from models.vlm import VlmPolicy
from schemas import action as act
from schemas.action import Action, action_of
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError, UsageError
from schemas.observation import Observation, PastStep
from tests.fixtures.planted.replies import NEWER, SEEDS, mutated, with_odd_values
from tests.tiers import NIGHTLY

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "replies.json").read_text())
LIMITS = ImageLimits(28, 3136, 12845056)
SCREEN = (1920, 1080)
WAYS: tuple[act.Direction, ...] = ("up", "down", "left", "right")
ACTIONS: tuple[Action, ...] = (
    act.Click(x=0.25, y=0.75),
    act.LeftDouble(x=0.25, y=0.75),
    act.RightSingle(x=0.25, y=0.75),
    act.LongPress(x=0.25, y=0.75),
    act.LongPress(x=0.25, y=0.75, seconds=1.5),
    act.Move(x=0.25, y=0.75),
    act.MiddleSingle(x=0.25, y=0.75),
    act.TripleClick(x=0.25, y=0.75),
    act.LeftDouble(),
    act.TripleClick(),
    act.MouseDown(),
    act.MouseUp(x=0.25, y=0.75),
    act.MouseUp(button="right"),
    act.Drag(x=0.25, y=0.75, to_x=0.5, to_y=0.11),
    *(act.Scroll(x=0.25, y=0.75, direction=way) for way in WAYS),
    act.Type(content='it\'s "so"\nénd\n'),
    act.Hotkey(key="ctrl shift s"),
    act.Hotkey(key="enter"),
    act.OpenApp(app_name="Maps"),
    act.PressHome(),
    act.PressBack(),
    act.PressEnter(),
    act.PressRecent(),
    act.PressMenu(),
    act.Press(key="ctrl"),
    act.Release(key="ctrl"),
    act.Terminal(command="grep -c 'a b' \"$X\" | sort > out.txt"),
    act.ReadFile(path="docs/a b.txt"),
    act.WriteFile(path="a.py", content="def f(x):\n    return x < 3\n"),
    act.Scroll(direction="up"),
    act.Wait(),
    act.Finished(),
    act.CallUser(),
    act.CallUser(content="Which 'one'?"),
    act.Note(content='it\'s "5"\n'),
    act.UseTool(name="search", arguments={"q": 'it\'s "5"\n<b>', "n": [1, 0.5, None, {"a": True}]}),
)
EACH = [(name, template) for name in FAMILIES.names for template in FAMILIES.class_of(name).templates]


def made(name: str, template: str = "", **policy: Any) -> ModelFamily:
    kind = FAMILIES.class_of(name)
    family = kind(PolicyConfig(template=template or kind.templates[0], family=name, **policy))  # type: ignore[arg-type]
    family.fit(LIMITS)
    return family


def near(one: Action | None, other: Action) -> bool:
    if one is None or one.type != other.type:
        return False
    mine, theirs = one.model_dump(), other.model_dump()
    theirs = {name: value for name, value in theirs.items() if name != "seconds" or name in mine}  # some have no length
    return all(abs(mine[k] - v) < 6e-3 if isinstance(v, float) else mine[k] == v for k, v in theirs.items())


def answered(family: ModelFamily, action: Action, thought: str) -> Action:
    """The action as it is read behind a thought, which is Fara-7B's answer."""
    return act.Finished(content=thought) if type(family) is Fara7Family and action == act.Finished() else action


def emptied(read: Completion) -> Completion:
    """A reply without the `ctrl a` before its text, with which OpenWebRL empties the field."""
    match read.actions:
        case (act.Hotkey(key="ctrl a"), act.Type() as typed):
            return replace(read, actions=(typed,))
        case _:
            return read


def read_all(text: str, sides: list[int]) -> tuple[str, list[Action]]:
    read = parse_reply(text, (float(sides[0]), float(sides[1])))
    return read.thought, [*read.actions, *read.dropped]


def agrees(one: Action, theirs: dict[str, Any]) -> bool:
    """Whether an action is what ui-tars says of it: boxes as corners, all else as written."""
    mine = one.model_dump()
    for name, value in theirs["inputs"].items():
        prefix = {"start_box": "", "end_box": "to_"}.get(name)
        if prefix is None:
            if mine.get(name) != value:
                return False
        else:
            left, top, right, bottom = json.loads(value)
            if [mine.get(f"{prefix}x"), mine.get(f"{prefix}y")] != pytest.approx(
                [(left + right) / 2, (top + bottom) / 2]
            ):
                return False
    return one.type == theirs["type"]


@pytest.mark.parametrize("case", GOLDEN["ui-tars"], ids=lambda case: case["text"][:50])
def test_replies_are_read_as_the_public_package_reads_them_or_it_is_said_why_not(case: dict[str, Any]) -> None:
    thought, actions = read_all(case["text"], case["sides"])
    assert (thought, actions) == (case["thought"], [action_of(one) for one in case["actions"]])
    theirs = case["theirs"].get("actions", [])
    same = thought == (case["theirs"].get("thought") or "") and len(actions) == len(theirs) > 0
    same = same and all(agrees(one, other) for one, other in zip(actions, theirs, strict=True))
    assert same != ("differs" in case)


@pytest.mark.parametrize("case", GOLDEN["desktop"], ids=lambda case: case["text"][-50:])
def test_the_desktop_parsers_examples_are_read(case: dict[str, Any]) -> None:
    thought, actions = read_all(case["text"], case["sides"])
    assert (thought, actions) == (case["thought"], [action_of(one) for one in case["actions"]])
    if "differs" not in case:
        assert [one.type for one in actions] == case["types"]
        if case["boxes"] and len(box := case["boxes"][0]) == 4 and isinstance(actions[0], act.Click):
            assert (actions[0].x, actions[0].y) == pytest.approx(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2))


@pytest.mark.parametrize(("name", "template"), EACH)
def test_what_a_family_writes_it_reads(name: str, template: str) -> None:
    family, written = made(name, template), 0
    for action in ACTIONS:
        try:
            reply = family.reply("I do it.", [action], SCREEN)
        except UsageError as refused:
            assert "policy." in str(refused)
            continue
        read = emptied(family.read(Completion(reply), SCREEN))
        assert near(read.first, answered(family, action, "I do it.")) and not (*read.actions, *read.dropped)[1:], (
            reply,
            read,
        )
        written += 1
    assert written >= (1 if template == "grounding" else 7 if name == "step-gui" else 8)


@pytest.mark.parametrize("name", FAMILIES.names)
def test_a_garbled_reply_is_an_action_or_an_error(name: str) -> None:
    family, chance = made(name), random.Random(7)
    for _ in range(400):
        read = family.read(Completion(mutated(chance, (*SEEDS, *NEWER))), SCREEN)
        assert (read.first is None) == (read.error is not None)
        assert read.first is not None or not (*read.actions, *read.dropped)[1:]


CALLS = (
    *SEEDS,
    "explain:a\taction:TYPE\tvalue:'a'\tpoint:[1, 2]\tis_keyboard:true\tsummary:",
    "explain:a\taction:LONGPRESS\tpoint:500,500\tduration:1.5\nsummary:b",
    *NEWER,
    "<tool_call>\n{'name': 'computer_use', 'arguments': {'action': 'key', 'keys': ['ctrl', 'c']}}\n</tool_call>",
    "<tool_call>{'name': 'mobile_use', 'arguments': {'action': 'type', 'text': 'a', 'coordinate': (5, 5)}}</tool_call>",
    'Memory: \nReason: a\nAction: {"action_type": "input_text", "text": "a", "box_2d": [[1, 2, 3, 4]], "enter": true}',
    "```python\npyautogui.press(['a', 'b'], presses=2, interval=0.1)\npyautogui.click((1, 2, 3, 4), clicks=2)\n```",
    "<action>swipe(from_coord=[1, 2], to_coord=(3, 4), amount=0.2)\nterminate(status='failure', info='x')</action>",
    "<action>moveTo(1, 2)\ndrag(xOffset=[1, 2])\nwrite(['a', 'enter'])\nlong_press(1, 2, duration=3)</action>",
)


@pytest.mark.parametrize(("name", "template"), EACH)
def test_whatever_stands_in_place_of_a_name_or_a_value_a_reply_is_an_action_or_an_error(
    name: str, template: str
) -> None:
    family, chance = made(name, template), random.Random(11)
    for _ in range(20_000 if NIGHTLY else 150):
        text = with_odd_values(chance, CALLS)
        read = family.read(Completion(text), SCREEN)
        assert (read.first is None) == (read.error is not None), text
        assert family.read_answer(text, SCREEN).error is None or read.error


@pytest.mark.parametrize(
    ("call", "action"),
    [
        ('{{"name": "computer_use", "arguments": {"action": "wait"}}}', None),
        ('{"name": "computer_use", "arguments": {["action"]: "wait"}}', None),
        ("{'name': 'computer_use', 'arguments': {'action': 'key', 'keys': {'ctrl', 'c'}}}", None),
        ("{'name': 'computer_use', 'arguments': {'action': 'type', 'text': b'a'}}", None),
        ("{'name': 'computer_use', 'arguments': {'action': 'wait', 3: 4}}", act.Wait()),
        (
            "{'name': 'computer_use', 'arguments': {'action': 'left_click', 'coordinate': (500, 250)}}",
            act.Click(x=0.5, y=0.25),
        ),
    ],
)
def test_a_python_literal_is_a_call_where_json_can_say_it(call: str, action: Action | None) -> None:
    read = made("qwen3-vl").read(Completion(f"<tool_call>\n{call}\n</tool_call>"), SCREEN)
    assert read.first == action and (action is not None or read.error)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAMILIES.names if name not in ("tiny", "thousandths", "pixels")])
@pytest.mark.parametrize("piece", range(4))
def test_a_long_reply_is_read_in_time_that_grows_with_its_length(name: str, piece: int) -> None:
    family = made(name)
    parts = (*SEEDS, *NEWER)[piece::4]

    def seconds(length: int) -> float:
        started = time.process_time()
        for part in parts:
            family.read(Completion((part + "\n") * (length // len(part))), SCREEN)
        return time.process_time() - started

    # A first reading also fills caches, so a slow one is repeated before it is compared with half of its length.
    assert seconds(40_000) < 0.3 or seconds(40_000) < min(max(6 * seconds(20_000), 0.3), 2.0)


def chat(family: ModelFamily, past: int = 2) -> list[tuple[str, str]]:
    """Role and content of each turn, a screen as its width."""
    seen = [Observation(b"", 1000 + number, 1000, "") for number in range(past + 1)]
    turns = tuple(PastStep(f"t{n}", family.write(act.Click(x=0.5, y=0.5), (1000, 1000)), seen[n]) for n in range(past))

    def shown(part: Message) -> str:
        return f"<{part['observation'].width}>" if part["type"] == "image" else part["text"]

    messages = family.messages(Context("Do it.", turns, seen[-1], 0))
    return [(one["role"], "".join(shown(part) for part in one["content"])) for one in messages]


def test_ui_tars_is_asked_in_the_user_turn_and_shown_its_past_with_box_tokens() -> None:
    roles, texts = zip(*chat(made("ui-tars-1.0", history_images=2)), strict=True)
    assert roles == ("user", "assistant", "user", "assistant", "user")
    assert texts[0].startswith("You are a GUI agent.") and texts[0].endswith("## User Instruction\nDo it.")
    assert texts[1] == "Thought: t0\nAction: click(start_box='<|box_start|>(500,500)<|box_end|>')"
    assert (texts[2], texts[4]) == ("<1001>", "<1002>")
    point = made("ui-tars-1.5", dialect="point")
    assert "<point>x1 y1</point>" in chat(point)[0][1] and "<point>" in point.write(act.Click(x=0.5, y=0.5), SCREEN)


def test_qwen_is_told_its_tools_and_the_size_of_the_picture_in_the_system_turn() -> None:
    roles, texts = zip(*chat(made("qwen2.5-vl", history_images=2)), strict=True)
    assert roles == ("system", "user", "assistant", "user")
    assert '"name": "computer_use"' in texts[0] and "resolution is 1008x1008" in texts[0]
    assert texts[1].startswith("<1001>\nPlease generate the next move") and texts[1].endswith(
        "Previous actions:\nStep 1: t0"
    )
    assert texts[2].startswith("t1\n<tool_call>\n{") and texts[3] == "<1002>"
    three = chat(made("qwen3-vl"))
    assert "resolution is 1000x1000" in three[0][1] and "Response format for every step" in three[0][1]


def test_a_drag_of_qwen_begins_where_the_mouse_was_moved_to() -> None:
    family = made("qwen2.5-vl")
    calls = family.write(act.Drag(x=0.5, y=0.5, to_x=0.25, to_y=0.75), SCREEN)
    assert calls.count("<tool_call>") == 2 and "mouse_move" in calls and "left_click_drag" in calls
    alone = family.read(Completion(calls[calls.index("</tool_call>") + len("</tool_call>") :]), SCREEN)
    assert alone.first == act.MouseDown()  # from the pointer, where an earlier reply left it
    assert [one.type for one in (*alone.actions, *alone.dropped)[1:]] == ["mouse_up"] and len(alone.actions) == 2


@pytest.mark.parametrize(
    ("name", "policy", "said"),
    [
        ("thousandths", {"template": "mobile"}, r"policy\.template.* is mobile.*computer and hybrid only"),
        ("tiny", {"template": "grounding"}, r"policy\.template"),
        ("holo-1.5", {"template": "computer"}, r"policy\.template.*grounding only"),
        ("qwen3-vl", {"dialect": "point"}, r"policy\.dialect.*box_v1 only"),
        ("ui-tars-1.0", {"dialect": "point"}, r"policy\.dialect.* is point"),
        ("ui-tars-1.5", {"thoughts": False}, r"policy\.thoughts.* is false"),
        ("glm", {"history_images": 3}, r"policy\.history_images.* is 3, but glm"),
        ("scalecua", {"history_images": 2}, r"policy\.history_images.* is 2, but scalecua"),
        ("holo-2", {"history_images": 2, "template": "grounding"}, r"policy\.history_images"),
    ],
)
def test_an_option_that_a_family_does_not_read_is_refused_by_name(name: str, policy: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        FAMILIES.class_of(name)(PolicyConfig(**{"family": name, **policy}))


def checkpoint(folder: Path, kind: str, taught: bool = True, processor: bool = True) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"added": ["<tool_call>"] if taught else []}))
    if processor:
        fields = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2}
        (folder / "preprocessor_config.json").write_text(
            json.dumps({**fields, "min_pixels": 3136, "max_pixels": 2116800})
        )
    return folder


@pytest.mark.parametrize(
    ("kind", "taught", "name"),
    [
        ("qwen2_vl", True, "ui-tars-1.0"),
        ("qwen2_5_vl", True, "qwen2.5-vl"),
        ("qwen2_5_vl", False, "pixels"),
        ("qwen3_vl", True, "qwen3-vl"),
        ("qwen3_vl_moe", True, "qwen3-vl"),
        ("qwen3_vl", False, "thousandths"),
        ("glm4v", True, "glm"),
        ("glm4v_moe", True, "glm"),
        ("glm46v", True, "glm"),
        ("internvl", True, "internvl"),
        ("internvl_chat", True, "internvl"),
    ],
)
def test_the_architecture_and_the_vocabulary_decide_where_no_family_is_named(
    tmp_path: Path, kind: str, taught: bool, name: str
) -> None:
    assert name_of(PolicyConfig(base=str(checkpoint(tmp_path / "base", kind, taught)))) == name


def test_a_family_knows_its_name_the_checkpoints_limits_and_its_limit_of_tokens(tmp_path: Path) -> None:
    policy = PolicyConfig(base=str(checkpoint(tmp_path / "base", "qwen2_5_vl")), family="ui-tars-1.5")
    family = family_of(policy)
    assert (family.name, family.limits, reply_limit(policy)) == ("ui-tars-1.5", ImageLimits(28, 3136, 2116800), 1000)
    assert reply_limit(PolicyConfig()) == 32 and reply_limit(PolicyConfig(max_new_tokens=7)) == 7


def test_a_family_that_does_not_fit_the_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"policy\.family.*small policy"):
        name_of(PolicyConfig(family="qwen3-vl"))
    bare = checkpoint(tmp_path / "bare", "qwen2_5_vl", processor=False)
    with pytest.raises(CheckpointError, match=r"policy\.base.*no image processor"):
        family_of(PolicyConfig(base=str(bare), family="ui-tars-1.5"))
    other = checkpoint(tmp_path / "tiny", "qwen2_5_vl")
    with pytest.raises(UsageError, match=r"policy\.family.* is tiny"):
        name_of(PolicyConfig(base=str(other), family="tiny"))


class Canned(LanguageModel):
    """Answers one chat with a whole reply and every other with a cut one."""

    def __init__(self, directory: Path, config: PolicyConfig, version: str) -> None:
        return

    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """`wait()`."""
        return [Completion("Action: wait()", cut=number > 0) for number in range(len(chats))]


def test_a_reply_that_was_cut_is_no_action_and_every_reply_names_the_family(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", "qwen2_5_vl")
    policy = PolicyConfig(base=str(base), family="ui-tars-1.5", backend=f"{__name__}:Canned")
    context = Context("Do it.", (), Observation(b"", 160, 210, ""), 0)
    whole, cut = VlmPolicy(base, policy).act([context, context])
    assert (whole.first, whole.family) == (act.Wait(), "ui-tars-1.5")
    assert cut.first is None and cut.family == "ui-tars-1.5"
    assert "cut at 1000 tokens" in (cut.error or "") and "policy.max_new_tokens" in (cut.error or "")


def test_what_a_model_thinks_between_tags_is_not_shown_again() -> None:
    family = made("qwen3-vl")
    calls = family.write(act.Click(x=0.5, y=0.5), SCREEN)
    read = family.read(Completion(f"It is below.\n</think>\n\nAction: I click.\n{calls}"), SCREEN)
    assert (read.thought, read.first) == ("I click.", act.Click(x=0.5, y=0.5))
    assert family.read(Completion(f"<think>\nIt is below.\n</think>\n{calls}"), SCREEN).thought == "It is below."


def test_scalecua_names_past_steps_by_their_operations_and_writes_fractions_on_internvl() -> None:
    family = made("scalecua-internvl", history_images=1)
    written = family.write(act.Click(x=0.36741, y=0.9192), SCREEN)
    said = written.replace("Click it.", 'Open "My Books".')
    assert "click(x=0.3674, y=0.9192)" in written
    past = (
        PastStep("t", said, Observation(b"", 1000, 1000, "")),
        PastStep("t", "wait()", Observation(b"", 1000, 1000, "")),
    )
    asked = family.messages(Context("Do it.", past, past[0].observation, 0))[-1]["content"][-1]["text"]
    assert asked.endswith('Previous operations:\nStep 1: "Open \\"My Books\\"."\nStep 2: "wait()"')


@pytest.mark.parametrize("content", ["42", 'It\'s "done",\nall (of) it.', "DONE()", "a ='(b)' c", "x DONE DONE(1)"])
@pytest.mark.parametrize(
    ("name", "template", "head"),
    [
        ("opencua", "computer", "computer.terminate(status='success', answer="),
        ("opencua-qwen2", "computer", "computer.terminate(status='success', answer="),
        ("glm", "computer", "DONE(content="),
        ("glm", "mobile", '{"action_type": "answer", "text": '),
        ("scalecua", "computer", "terminate(status='success', info="),
    ],
)
def test_an_answer_that_ends_a_trajectory_is_written_with_its_words(
    name: str, template: str, head: str, content: str
) -> None:
    family = made(name, template=template)
    action = act.Finished(content=content)
    assert head in family.write(action, SCREEN) and "=''" not in family.write(act.Finished(), SCREEN)
    assert family.read(Completion(family.reply("I know it.", [action], SCREEN)), SCREEN).first == action


@pytest.mark.parametrize(
    ("name", "text", "actions"),
    [
        ("scalecua", "<operation>x</operation><action>\nclick(x=960, y=540", [act.Click(x=960 / 1932, y=540 / 1092)]),
        (
            "scalecua-internvl",
            "<action>moveTo(x=0.1, y=0.2)\ndragTo(x=0.3, y=0.4, button='left')\nhotkey('ctrl', 's')</action>",
            [act.Drag(x=0.1, y=0.2, to_x=0.3, to_y=0.4), act.Hotkey(key="ctrl s")],
        ),
        ("scalecua-internvl", "<action>swipe(direction='up')</action>", [act.Scroll(direction="down")]),
        ("scalecua", "<action>response(answer='42')</action>", [act.Finished(content="42")]),
        ("internvl", "<ref>OK</ref><box>[[100, 200, 300, 400]]</box>", [act.Click(x=0.2, y=0.3)]),
        ("internvl", "[[1, 2, 3, 4]] [[512,300]]", [act.Click(x=0.512, y=0.3)]),
        ("internvl", "[[500,  300]]", [act.Click(x=0.5, y=0.3)]),
        ("internvl", "[ [ 100 , 200,\n300 ,\t400 ] ]", [act.Click(x=0.2, y=0.3)]),
        ("internvl", "[[1200, 200]]", []),
        (
            "ui-tars-2",
            "<think_never_used_5>a</think_never_used_5><seed:tool_call_never_used_5><function_never_used_5=click>"
            "<parameter_never_used_5=point><point>17 58</point></parameter_never_used_5></function_never_used_5>"
            "</seed:tool_call_never_used_5>",
            [act.Click(x=0.017, y=0.058)],
        ),
        ("ui-tars-2", "<thinkt>a</thinkt><answer>\n42\n</answer>", [act.Finished(content="42")]),
        ("ui-tars-2", "<thinkt>a</thinkt><seed:tool_call>\n</seed:tool_call>", []),
    ],
)
def test_replies_of_newer_families_are_read(name: str, text: str, actions: list[Action]) -> None:
    read = made(name).read(Completion(text), SCREEN)
    assert [*read.actions, *read.dropped] == actions, read.error


OPENCUA = "## Thought:\nlong musing\n\n## Action:\nClick File.\n\n## Code:\n```python\npyautogui.click(x=1, y=1)\n```"


def asked_after(family: ModelFamily, reply: str) -> str:
    """The prompt of the step after a reply, as text."""
    screen = Observation(b"", *SCREEN, "")
    read = family.read(Completion(reply), SCREEN)
    turn = PastStep(read.thought, read.action_text, screen)
    chat = family.chat(Context("Do it.", (turn,), screen, 0))
    return "\n".join(part["text"] for one in chat for part in one["content"] if part["type"] == "text")


@pytest.mark.parametrize("name", ["opencua", "opencua-qwen2"])
@pytest.mark.parametrize(
    "reply",
    [
        OPENCUA,
        OPENCUA.replace("## Code:\n", ""),
        f"<think>long musing</think>{OPENCUA.partition(chr(10) * 2)[2]}",
        OPENCUA.partition("\n\n")[2],
        OPENCUA.replace("```python\n", "").replace("\n```", ""),
    ],
)
def test_opencuas_history_holds_the_sentences_of_its_steps(name: str, reply: str) -> None:
    """xlang-ai/OpenCUA @1d70f20 evaluation/agentnetbench/agent/opencua.py: STEP_TEMPLATE, ACTION_HISTORY_TEMPLATE."""
    family = made(name)
    read = family.read(Completion(reply), SCREEN)
    assert isinstance(read.first, act.Click) and read.thought == ("long musing" if "musing" in reply else "")
    assert family.sentence(read.action_text) == "Click File."
    asked = asked_after(family, reply)
    assert "\n# Step 1:\n## Action:\nClick File.\n\n" in asked and "musing" not in asked


def test_an_observation_of_opencua_is_part_of_the_thought() -> None:
    read = made("opencua").read(Completion(f"## Observation:\nA menu.\n\n{OPENCUA}"), SCREEN)
    assert read.thought == "A menu.\n\nlong musing"


@pytest.mark.parametrize("head", ["# Step 2:", "# Step 12", "## Step 3：", "**Step 4:**", "# step 1:\n", "\n# Step 2:"])
def test_the_heading_of_a_step_of_opencua_is_no_thought(head: str) -> None:
    """The family's prompt shows each past reply under such a heading."""
    for reply in (OPENCUA, OPENCUA.partition("\n\n")[2], OPENCUA.rpartition("\n\n")[2]):
        read = made("opencua").read(Completion(f"{head}\n{reply}"), SCREEN)
        assert read.first is not None and read.thought == ("long musing" if "musing" in reply else "")
    read = made("opencua").read(Completion(f"Well.\n{head}\n{OPENCUA}"), SCREEN)
    assert read.thought == "Well.\n\nlong musing"
    for words in ("# Step 2: open the menu", "Step 2 of the list is next.", "# Stepping back"):
        assert made("opencua").read(Completion(f"{words}\n{OPENCUA}"), SCREEN).thought == f"{words}\n\nlong musing"


@pytest.mark.parametrize("name", ["opencua", "scalecua"])
def test_a_demonstration_has_the_templates_sentence_in_history_and_target(name: str) -> None:
    family = made(name)
    written = family.write(act.Click(x=0.5, y=0.25), SCREEN)
    assert family.sentence(written) == "Click it." and written in family.reply("a", [act.Click(x=0.5, y=0.25)], SCREEN)


def test_qwens_list_of_previous_actions_holds_their_sentences() -> None:
    """OSWorld's Qwen3-VL agent lists the line that begins with `Action:`."""
    call = '<tool_call>{"name": "computer_use", "arguments": {"action": "wait"}}</tool_call>'
    family = made("qwen3-vl")
    for reply in (f"Action: Wait for it.\n{call}", f"Thought: long musing\nAction: Wait for it.\n{call}"):
        assert "Previous actions:\nStep 1: Wait for it." in asked_after(family, reply)
    assert family.read(Completion(f"Thought: a\nAction: b\n{call}"), SCREEN).thought == "a\nAction: b"


def test_glms_memory_is_shown_again() -> None:
    """zai-org/GLM-V examples/gui-agent/glm-45v/agent.md: the memory of the last step, and a phone's whole replies."""
    desktop = made("glm", "computer")
    box = "<|begin_of_box|>left_click(start_box='[1,2]')<|end_of_box|>"
    reply = f'I click.\n{box}\nMemory:\n[{{"code": "42"}}]'
    assert 'Thought: I click.\nAction: left_click(start_box=\'[1,2]\')\nMemory:\n[{"code": "42"}]\n#' in asked_after(
        desktop, reply
    )
    assert not desktop.read(Completion(reply), SCREEN).unused
    phone = made("glm", "mobile")
    reply = 'Memory: The code is 42.\nReason: I wait.\nAction: {"action_type": "wait"}'
    read = phone.read(Completion(reply), SCREEN)
    assert phone.reply(read.thought, [act.Wait()], SCREEN) == reply
    assert f"Step 0:\n{reply}\n" in asked_after(phone, reply)
    assert phone.read(Completion(reply.replace("The code is 42.", "None")), SCREEN).thought == "I wait."


@pytest.mark.parametrize("name", ["holo-1.5", "holo-2"])
@pytest.mark.parametrize(("x", "problem"), [(-5, "greater than or equal to 0"), (99_999, "less than or equal to 1")])
def test_a_place_outside_of_the_screen_is_named_by_its_field(name: str, x: int, problem: str) -> None:
    written = f'{{"x": {x}, "y": 10}}'
    read = made(name).read(Completion(written), SCREEN)
    assert read.error == f"click.x: should be {problem} in {written!r}"


def test_holos_own_note_and_thought_are_the_thought() -> None:
    read = made("holo-2").read(Completion('{"note": "Two menus.", "thought": "The left one.", "x": 1, "y": 2}'), SCREEN)
    assert read.thought == "Two menus.\nThe left one." and not read.unused
