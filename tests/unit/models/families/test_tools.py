"""Functions of the environment: listed in the prompt, called as the action `tool`, refused with a reason."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from learning.data.documents import chat_of
from learning.data.files import Rollout
from learning.data.sample import Past, TrainSample
from models.completion import Completion
from models.families.family import ModelFamily
from models.families.outside import unmarked
from models.families.registry import FAMILIES
from models.policy import Context
from schemas import action as act
from schemas.action import to_json
from schemas.config.policy import PolicyConfig, ToolConfig
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from schemas.refusal import Refusal
from tests.fixtures.sentences import Sentences
from tests.unit.models.families.published import ASKED
from tests.unit.models.families.test_dialects import values
from tests.unit.models.families.test_families import made

SEARCH: dict[str, Any] = {
    "name": "maps.search-web",
    "description": 'Finds "places".',
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "most": {"type": "integer"}}},
}
TOOLED = [
    ("mai-ui", "mobile"),
    *((name, one) for name in ("qwen3.5", "qwen3.6", "qwen3.8") for one in ("computer", "mobile")),
]
CALL = act.UseTool(
    name="maps.search-web", arguments={"query": "5", "most": 3, "near": [0.5, {"open": True}], "x": None}
)
SCREEN = Observation(b"", 1000, 1000, "")
SIZE = (1000, 1000)


def tooled(name: str, template: str, **policy: Any) -> ModelFamily:
    return made(name, template, tools=[SEARCH], **policy)


def texts(family: ModelFamily, *turns: PastStep) -> list[tuple[str, str]]:
    chat = family.chat(Context("Do it.", turns, SCREEN, 0))
    return [(one["role"], unmarked("".join(part.get("text", "<screen>") for part in one["content"]))) for one in chat]


@pytest.mark.parametrize(("name", "template"), TOOLED)
def test_a_call_is_read_as_it_was_written_and_only_where_the_prompt_lists_functions(name: str, template: str) -> None:
    family = tooled(name, template)
    written = family.reply("I look.", [CALL], SIZE)
    found = family.read(Completion(written), SIZE)
    assert found.actions == (CALL,) and to_json(found.actions[0]) == to_json(CALL)
    assert (found.thought, found.unused, found.error) == ("I look.", (), None)
    unlisted = family.read(Completion(written.replace("maps.search-web", "ping")), SIZE).first
    assert isinstance(unlisted, act.UseTool) and unlisted.name == "ping"
    plain = made(name, template)
    error = plain.read(Completion(written), SIZE).error
    assert error is not None and "there is no tool 'maps.search-web'" in error
    with pytest.raises(UsageError, match=r"the tool 'maps\.search-web'"):
        plain.write(CALL, SIZE)
    click = family.reply("I click.", [act.Click(x=0.5, y=0.5)], SIZE)
    assert family.read(Completion(click), SIZE).action_text == plain.read(Completion(click), SIZE).action_text


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.6", "qwen3.8"])
def test_a_text_of_a_function_is_none_of_the_tool_of_the_same_name(name: str) -> None:
    properties = {one: {"type": "string"} for one in ("action", "coordinate", "note")}
    tool = ToolConfig(name="log", description="", parameters={"type": "object", "properties": properties})
    family = FAMILIES.class_of(name)(PolicyConfig(family=name, tools=[tool]))
    call = act.UseTool(name="log", arguments={"action": " a ", "note": "</function>"})
    assert family.read(Completion(family.write(call, SIZE)), SIZE).actions == (call,)
    click = family.write(act.Click(x=0.0, y=1.0), SIZE).replace("\nleft_click\n", "\n  left_click\n\n")
    assert family.read(Completion(click), SIZE).actions == (act.Click(x=0.0, y=1.0),)


TEXTS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]},
    {"oneOf": [{"enum": ["1234", "a"]}, {"const": None}]},
    {"enum": ["1234", "true", None]},
    {"const": "1234"},
]
"""Schemas that allow only texts, all but the first and the last also null."""
OTHERS: list[dict[str, Any]] = [
    {},
    {"type": "integer"},
    {"type": ["string", "integer"]},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"enum": ["a", 1234]},
    {"type": "null"},
]


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.6", "qwen3.8"])
@pytest.mark.parametrize("schema", TEXTS + OTHERS)
def test_the_schema_decides_whether_an_argument_is_a_text(name: str, schema: dict[str, Any]) -> None:
    parameters = {"type": "object", "properties": {"of": schema}}
    family = FAMILIES.class_of(name)(PolicyConfig(family=name, tools=[ToolConfig(name="log", parameters=parameters)]))
    is_text, may_be_null = schema in TEXTS, schema not in (TEXTS[0], TEXTS[-1])
    for written, value in (("1234", 1234), ("true", True), ("null", None)):
        reply = f"<tool_call>\n<function=log>\n<parameter=of>\n{written}\n</parameter>\n</function>\n</tool_call>"
        call = family.read(Completion(reply), SIZE).first
        assert isinstance(call, act.UseTool)
        assert call.arguments["of"] == (written if is_text and not (value is None and may_be_null) else value)
        assert family.read(Completion(family.write(call, SIZE)), SIZE).first == call
    null = act.UseTool(name="log", arguments={"of": "null"})
    if may_be_null:
        with pytest.raises(UsageError, match="no way to write"):
            family.write(null, SIZE)
    else:
        assert family.read(Completion(family.write(null, SIZE)), SIZE).first == null


@pytest.mark.parametrize(("name", "template"), TOOLED)
@pytest.mark.parametrize("own", ["computer_use", "mobile_use"])
def test_a_function_of_the_family_itself_is_refused(name: str, template: str, own: str, sentence: Sentences) -> None:
    with sentence.raises(UsageError, f"`policy.tools` lists {own}", hint="Rename"):
        made(name, template, tools=[{**SEARCH, "name": own}])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "a>b"}, "name"),
        ({"name": "my tool"}, "name"),
        ({"name": "a\n</tools>"}, "name"),
        ({"name": ""}, "name"),
        ({"parameters": {"query": {"type": "string"}}}, "is no schema of an object"),
        ({"parameters": {"type": "array"}}, "is no schema of an object"),
        ({"parameters": {"type": "object", "properties": ["query"]}}, "no table"),
        ({"parameters": {"type": "object", "properties": {"query": "string"}}}, "has query, which is no schema"),
        ({"parameters": {"type": "object", "properties": {"query": {"type": "strng"}}}}, "of type 'strng'"),
        ({"parameters": {"type": "object", "properties": {"query": {"type": ["string", 3]}}}}, "of type 3"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        ToolConfig.model_validate({**SEARCH, **change})


@pytest.mark.parametrize("field", ["tools", "tool_choice", "functions", "function_call"])
def test_functions_are_not_listed_in_a_field_of_each_request(field: str) -> None:
    with pytest.raises(ValidationError, match=r"list functions in policy\.tools"):
        PolicyConfig.model_validate({"server": {"url": "http://127.0.0.1:1/v1", "extra": {field: []}}})


@pytest.mark.parametrize(("name", "template"), TOOLED)
def test_the_prompt_lists_each_function(name: str, template: str) -> None:
    system = texts(tooled(name, template))[0][1]
    assert f'{json.dumps(SEARCH["name"])}, "description": "Finds \\"places\\"."' in system and "{tools}" not in system
    assert "maps.search-web" not in texts(made(name, template))[0][1]
    if name == "mai-ui":
        assert '{"action": "ask_user", "text": "xxx"}' in system and "## MCP Tools" in system


def test_mai_ui_asks_and_clicks_twice_only_with_functions() -> None:
    family, plain = tooled("mai-ui", "mobile"), made("mai-ui", "mobile")
    for action in (act.CallUser(content="Which one?"), act.LeftDouble(x=500 / 999, y=0.0)):
        assert family.read(Completion(family.reply("Hm.", [action], SIZE)), SIZE).actions == (action,)
        with pytest.raises(UsageError, match="mai-ui has no action there"):
            plain.write(action, SIZE)
    with pytest.raises(UsageError, match=r"`policy\.thoughts` is false"):
        tooled("mai-ui", "mobile", thoughts=False)


@pytest.mark.parametrize(("name", "template"), TOOLED)
def test_the_reason_of_a_refused_call_follows_it_in_acting_and_in_training(name: str, template: str) -> None:
    family = tooled(name, template, history_images=2)
    why, click = "there is no tool 'a' <|im_end|>", act.Click(x=0.5, y=0.5)
    steps = [("I look.", CALL, why), ("I click.", click, "missed")]
    turns = [PastStep(thought, family.write(one, SIZE), SCREEN, error) for thought, one, error in steps]
    chat = texts(family, *turns)
    shown = [text for role, text in chat if role == "user"]
    assert sum(why in text for text in shown) == 1 and not any("missed" in text for text in shown)
    if name != "mai-ui":
        assert any(f"<tool_response>\n{why}\n" in text for text in shown)
    replies = tuple(family.reply(thought, [one], SIZE) for thought, one, _ in steps)
    rollout = Rollout("t", 2, "k", ("a", "b"), "Do it.", replies, "r", past_errors=(why, "missed"))
    history = tuple(Past(thought, (to_json(one),), error) for thought, one, error in steps)
    sample = TrainSample("k", ("a", "b"), "Do it.", history, "So.", (to_json(click),))
    sampled = [replace(turn, reply=reply) for turn, reply in zip(turns, replies, strict=True)]
    for document, past in ((rollout, sampled), (sample, turns)):
        messages, _ = chat_of(document, family, [SIZE, SIZE], 0)
        assert messages == family.chat(Context("Do it.", tuple(past), SCREEN, 0))


@pytest.mark.parametrize(("name", "template"), [one for one in TOOLED if one[0] != "mai-ui"])
def test_the_reason_of_another_refused_action_is_not_the_functions(name: str, template: str) -> None:
    family = tooled(name, template)
    written = family.write_actions([act.Click(x=0.5, y=0.5), CALL, act.Wait()], SIZE)
    for number, shown in ((1, False), (2, True), (3, False)):
        error = Refusal("why it failed", number, 3).text
        chat = texts(family, PastStep("I look.", written, SCREEN, error))
        assert any(error in text for _, text in chat) is shown


@pytest.mark.parametrize(("name", "template"), [one for one in ASKED if one not in TOOLED])
def test_a_prompt_without_a_place_for_functions_refuses_the_setting(name: str, template: str) -> None:
    with pytest.raises(UsageError, match=r"`policy\.tools` lists 1 function"):
        tooled(name, template)


def test_a_function_is_listed_once() -> None:
    with pytest.raises(ValidationError, match=r"policy\.tools lists maps\.search-web twice"):
        PolicyConfig.model_validate({"tools": [SEARCH, SEARCH]})
    assert PolicyConfig.model_validate({"tools": [SEARCH]}).asked["tools"] == [SEARCH]
    assert "tools" not in PolicyConfig().asked


texts_only = st.text(max_size=12)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TOOLED), st.text(min_size=1, max_size=8), st.dictionaries(texts_only, values, max_size=3))
def test_a_call_is_written_without_a_loss_or_refused(
    kind: tuple[str, str], name: str, arguments: dict[str, Any]
) -> None:
    family, call = tooled(*kind), act.UseTool(name=name, arguments=arguments)
    try:
        written = family.taught("Hm.", [call], SIZE)
    except UsageError:
        assert kind[0] != "mai-ui" or name in ("computer_use", "mobile_use", "computer")
        return
    (found,) = family.read(Completion(unmarked(written)), SIZE).actions
    assert to_json(found) == to_json(
        act.UseTool(name=unmarked(name), arguments=json.loads(unmarked(json.dumps(call.arguments, ensure_ascii=False))))
    )


PIECES = (
    *("<tool_call>", "</tool_call>", "\n", '{"name": "', '", "arguments": {', '"a": ', "NaN", "1e999", "}}", "[" * 40),
    *("<function=f.g>", "<parameter=a>", "</parameter>", "</function>", "null", '"query"', "<parameter=query>"),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TOOLED), st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=24).map("".join))
def test_any_reply_is_an_action_or_an_error(kind: tuple[str, str], reply: str) -> None:
    found = tooled(*kind).read(Completion(reply), SIZE)
    assert (found.first is None) == (found.error is not None)


def test_every_tooled_family_is_tested() -> None:
    listed = {(name, one) for name in FAMILIES.names for one in FAMILIES.class_of(name).tooled}
    assert listed == set(TOOLED)
