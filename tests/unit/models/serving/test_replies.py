"""Replies of policies are whole behind the parsers of `transformers serve` 5.24.0, which runs here, vLLM and SGLang."""

import asyncio
import json
import time
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.cli.serving.chat_completion import ChatCompletionHandler
from transformers.cli.serving.utils import DirectStreamer, _StreamError, parse_assistant_message

from models.completion import Completion
from models.families.family import ModelFamily
from models.families.registry import FAMILIES
from models.serving.openai import NoAnswer, OpenAIClient
from models.serving.proof import Sampling, require_sampling
from models.serving.replies import reply_of
from models.serving.served import endpoint_of
from models.serving.server import ServerModel, _completion
from schemas.action import Click, Finished, Scroll, Type
from schemas.config.policy import PolicyConfig, ServerConfig
from schemas.failure import FlywheelError
from tests.fixtures.sentences import Sentences

SCREEN = (1000, 1000)
PROMPT = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
HERE = Path("a checkpoint that has no files")
OF_QWEN = [
    ("qwen2_vl", "ui-tars-1.0"), ("qwen2_5_vl", "ui-tars-1.5"), ("qwen2_5_vl", "qwen2.5-vl"),
    ("qwen2_5_vl", "opencua"), ("qwen2_5_vl", "scalecua"), ("qwen3_vl", "qwen3-vl"), ("qwen3_vl_moe", "qwen3-vl"),
    ("qwen3_5", "qwen3-vl"), ("qwen3_5", "qwen3.5"), ("qwen3_5", "qwen3.6"), ("qwen3_5", "fara-1.5"),
    ("qwen2_5_vl", "fara-7b"), ("glm4v", "glm"),
]  # fmt: skip
"""Types of models that `transformers serve` knows, and the families of theirs."""
AS_XML = ("qwen3.5", "qwen3.6")
"""Families that write calls as XML, which a server's parser leaves as JSON."""
ACTIONS = [
    Click(x=0.5, y=0.25), Scroll(x=0.5, y=0.5, direction="down"), Type(content='é "ja"\n<b>, \u2028 世界'), Finished(),
]  # fmt: skip
THOUGHTS = ["", "I click OK.", "First {this}.\n\nThen <b>that</b>, é."]
REASONING = ["", "<think>\nMaybe.\nYes.\n</think>\n\n", "<think>\nMaybe.\n</think>\n"]


@lru_cache
def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of bytes with Qwen's special tokens and its tags."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend: Any = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    backend.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")


def ids_of(text: str) -> list[int]:
    return tokenizer()(text, add_special_tokens=False)["input_ids"]  # pyright: ignore[reportReturnType]


def family(name: str) -> ModelFamily:
    kind = FAMILIES.class_of(name)
    made = kind(PolicyConfig.model_validate({"family": name, "template": kind.templates[0]}))
    made.limits = kind.published
    return made


def streamed_by_transformers(reply: str, model_type: str, prompt: str = PROMPT, limit: int | None = None) -> str:
    """What `transformers serve` streams where its model writes a reply: its own handler, parser and events."""

    class Manager:
        def generate_streaming(self, *_: Any, response_parser: Any = None, **__: Any) -> Any:
            queue: asyncio.Queue[Any] = asyncio.Queue()
            streamer = DirectStreamer(
                tokenizer().backend_tokenizer, asyncio.get_running_loop(), queue, response_parser=response_parser
            )
            streamer._first = False
            try:  # as `GenerateManager.generate_streaming`
                for token in ids_of(f"{reply}<|im_end|>")[:limit]:
                    streamer.put(SimpleNamespace(tolist=lambda token=token: [token]))  # pyright: ignore[reportArgumentType]
                streamer.end()
            except Exception as error:
                asyncio.get_running_loop().call_soon_threadsafe(queue.put_nowait, _StreamError(str(error)))
            return queue, streamer

    async def events() -> str:
        handler: Any = ChatCompletionHandler.__new__(ChatCompletionHandler)
        answer = handler._streaming(
            "one", SimpleNamespace(config=SimpleNamespace(model_type=model_type)), tokenizer(), "m",
            {"input_ids": ids_of(prompt)}, SimpleNamespace(max_new_tokens=limit), gen_manager=Manager(),
        )  # fmt: skip
        return "".join([part async for part in answer.body_iterator])

    return asyncio.run(events())


def completed_by_transformers(reply: str, model_type: str, prompt: str = PROMPT) -> dict[str, Any]:
    """The message that `transformers serve` makes of a reply without a stream."""
    model: Any = SimpleNamespace(config=SimpleNamespace(model_type=model_type))
    content, reasoning, calls = parse_assistant_message(
        tokenizer(), model, ids_of(f"{reply}<|im_end|>"), ids_of(prompt), cleaned_content=reply
    )
    made = [{"type": "function", "function": {"name": one.name, "arguments": one.arguments}} for one in calls or ()]
    return {"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": made or None}


def client(answer: httpx.Response, retries: int = 0) -> OpenAIClient:
    config = ServerConfig(url="http://model.test/v1", retries=retries)
    return OpenAIClient(endpoint_of(config), httpx.MockTransport(lambda _: answer))


def events(body: str) -> httpx.Response:
    return httpx.Response(200, content=body.encode(), headers={"Content-Type": "text/event-stream; charset=utf-8"})


def choices(message: dict[str, Any], ended: str = "stop", generated: int = 9, **more: Any) -> httpx.Response:
    usage = {"completion_tokens": generated, "total_tokens": generated + 5}
    return httpx.Response(200, json={"choices": [{"message": message, "finish_reason": ended, **more}], "usage": usage})


def written(name: str) -> list[str]:
    """Replies of a family, some behind thinking where it has no tags of its own around a thought."""
    of = family(name)
    replies = [of.reply(thought, [action], SCREEN) for thought in THOUGHTS for action in ACTIONS]
    thinking = [] if any("<think>" in reply for reply in replies) else REASONING
    return [*replies, *(f"{one}{reply}" for one in thinking for reply in replies)]


def require_read_alike(of: ModelFamily, reply: str, choice: dict[str, Any]) -> None:
    here, there = of.read(Completion(reply), SCREEN), of.read(_completion(choice, HERE), SCREEN)
    fields = ("actions", "dropped", "thought", "error")
    assert [getattr(there, name) for name in fields] == [getattr(here, name) for name in fields], reply
    assert here.first is not None


@pytest.mark.parametrize(("model_type", "name"), OF_QWEN)
def test_a_reply_that_transformers_serve_streams_is_the_one_that_the_policy_wrote(model_type: str, name: str) -> None:
    of = family(name)
    for reply in written(name):
        choice = client(events(streamed_by_transformers(reply, model_type))).complete({})
        require_read_alike(of, reply, choice)
        assert name in AS_XML or choice["text"].split() == reply.split(), "but for white space"


@pytest.mark.parametrize(("model_type", "name"), OF_QWEN)
def test_a_reply_that_a_server_split_without_a_stream_reads_the_same(model_type: str, name: str) -> None:
    of = family(name)
    for reply in written(name):
        message = completed_by_transformers(reply, model_type)
        require_read_alike(of, reply, client(choices(message)).complete({}))
        if thought := message.pop("reasoning_content"):  # vLLM's name for it, with the white space that it keeps
            message |= {"reasoning": f"\n{thought}\n", "content": f"\n\n{message['content']}"}
            require_read_alike(of, reply, client(choices(message)).complete({}))


def test_thinking_that_the_prompt_opened_is_thinking() -> None:
    of = family("qwen3-vl")
    reply = of.reply("I click OK.", [ACTIONS[0]], SCREEN)
    body = streamed_by_transformers(f"Maybe.\n</think>\n\n{reply}", "qwen3_vl", f"{PROMPT}<think>\n")
    choice = client(events(body)).complete({})
    assert choice["text"] == f"<think>\nMaybe.\n</think>\n\n{reply}"


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ('Hm\n<tool_call>\n{"name": "c", "arguments": {"action": "type", "text": "a\nb"}}\n</tool_call>', None),
        ('Hm\n<tool_call>\n{"name": "computer_use", "arguments": {"action": "wait"}\n</tool_call>', None),
        ("Hm\n<tool_call>\n{'name': 'computer_use', 'arguments': {'action': 'wait'}}\n</tool_call>", None),
        ('Hm\n<tool_call>\n{"action": "wait"}\n</tool_call>', "Hm\n<tool_call></tool_call>"),
        ("Hm\n<tool_call>\n[3]\n</tool_call>", "Hm\n<tool_call></tool_call>"),
        ("Hm\n<tool_call>\n7\n</tool_call>", "Hm\n<tool_call></tool_call>"),
        ("<think>Hm</think>\n\n<tool_call>x</tool_call> and", "<think>\nHm\n</think>\n<tool_call>x</tool_call>"),
        ("Hm <tool_call> is a tag.", "Hm"),
    ],
)  # fmt: skip
def test_a_call_that_transformers_serve_cannot_read_is_the_policy_s_reply(reply: str, text: str | None) -> None:
    """Without a stream each is a 500 with the text `Internal Server Error`."""
    with pytest.raises((ValueError, TypeError, KeyError)):
        completed_by_transformers(reply, "qwen2_5_vl")
    choice = client(events(streamed_by_transformers(reply, "qwen2_5_vl"))).complete({})
    assert choice["text"] == (text or reply)
    here = family("qwen2.5-vl").read(Completion(reply), SCREEN)
    if text is None:
        assert family("qwen2.5-vl").read(_completion(choice, HERE), SCREEN).first == here.first


def test_a_reply_that_ended_at_its_limit_within_a_call_is_cut_and_no_failure() -> None:
    reply = family("qwen2.5-vl").reply("I click OK.", [ACTIONS[0]], SCREEN)
    choice = client(events(streamed_by_transformers(reply, "qwen2_5_vl", limit=40))).complete({})
    made = _completion(choice, HERE)
    assert (made.text, made.cut, made.failure) == ("I click OK.", True, "")


def test_a_server_that_fails_at_what_the_policy_wrote_is_asked_for_a_stream_and_no_environment_failed() -> None:
    asked = list[dict[str, Any]]()

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        if "top_k" in asked[-1]:
            unexpected = "Unexpected fields in the request: " + str(set(asked[-1]) - {"model", "messages"})
            return httpx.Response(422, json={"detail": unexpected})
        if "stream" not in asked[-1]:
            return httpx.Response(500, text="Internal Server Error")
        return events(streamed_by_transformers("Hm\n<tool_call>\nwait\n</tool_call>", "qwen2_5_vl"))

    policy = PolicyConfig(server=ServerConfig(url="http://model.test/v1", retries=3))
    (made,) = ServerModel(HERE, policy, "p", httpx.MockTransport(handler)).generate([[]], [7], 0.0, 9)
    assert (made.text, made.failure) == ("Hm\n<tool_call>\nwait\n</tool_call>", "")
    assert [(one.get("stream"), one["seed"]) for one in asked] == [(None, 7), (None, 7), (True, 7)]


def behind_transformers(
    reply: str, asked: list[Any] | None = None, prompt: str = PROMPT, checkpoint: Path = HERE
) -> ServerModel:
    """A model behind `transformers serve` that writes a reply to everything."""

    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if "top_k" in body:
            return httpx.Response(422, json={"detail": f"Unexpected fields in the request: {set(body)}"})
        if asked is not None:
            asked.append(body.get("stream"))
        if "stream" in body:
            return events(streamed_by_transformers(reply, "qwen3_vl", prompt))
        try:
            return choices(completed_by_transformers(reply, "qwen3_vl", prompt))
        except (ValueError, TypeError, KeyError):
            return httpx.Response(500, text="Internal Server Error")

    policy = PolicyConfig(server=ServerConfig(url="http://model.test/v1", retries=0))
    return ServerModel(checkpoint, policy, "p", httpx.MockTransport(handler))


@pytest.mark.parametrize(
    "form",
    [
        "Perhaps {draft} no.</think>\n\n{meant}",
        "Perhaps {draft} no.</think>\nI do it. {meant} done",
        "I click the button.\n{meant}\nThen I wait.",
        "<think>\na {draft}</think>\nb\n<think>\nc\n</think>\n{meant}",
        "<think>\na</think> hm {draft} no\n</think>\n{meant}\nend",
    ],
)
def test_a_reply_with_calls_is_read_in_its_order_and_a_draft_is_no_action(form: str) -> None:
    of = family("qwen3-vl")
    draft, meant = (of.reply("", [action], SCREEN) for action in ACTIONS[:2])
    reply, asked = form.format(draft=draft, meant=meant), list[Any]()
    model = behind_transformers(reply, asked)
    for made in model.generate([[], []], [7, 8], 0.0, 9):
        there, here = of.read(made, SCREEN), of.read(Completion(reply), SCREEN)
        assert there.first == here.first == ACTIONS[1]
        assert "".join(there.thought.split()) == "".join(here.thought.split()), "but for white space"
    assert asked == [None, True, True], "a server that splits replies is asked for streams alone"


UNREADABLE = '<tool_call>\n{"name": "computer_use", "arguments": {"action": "type", "text": "a\nb"}}\n</tool_call>'
THINKS = """{%- for message in messages %}{{- '<think>\\n' + (message.thought or '') }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
OPENS = THINKS.replace("assistant\\n", "assistant\\n<think>\\n")


def checkpoint_of(template: str, at: Path, name: str = "chat_template.jinja") -> Path:
    (at / name).write_text(template if name.endswith("jinja") else json.dumps({"chat_template": template}))
    return at


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
@pytest.mark.parametrize("form", ["maybe {call} no.</think>\n{meant}", "or {meant} or {call} no.</think>\n{meant}"])
def test_of_a_model_that_thinks_a_call_that_no_server_could_read_is_not_performed(
    form: str, name: str, tmp_path: Path
) -> None:
    of = family("qwen3-vl")
    reply = form.format(call=UNREADABLE, meant=of.reply("", [ACTIONS[0]], SCREEN))
    (made,) = behind_transformers(reply, checkpoint=checkpoint_of(THINKS, tmp_path, name)).generate([[]], [7], 0.0, 9)
    assert made.text == reply.split()[0] and not made.failure
    assert (found := of.read(made, SCREEN)).first is None and found.error


@pytest.mark.parametrize(("template", "before"), [(THINKS, "<think>\nHm\n</think>\n"), ("{{ messages }}", "Hm\n")])
def test_a_call_that_no_server_could_read_is_performed_where_thinking_has_ended(
    template: str, before: str, tmp_path: Path
) -> None:
    of, checkpoint = family("qwen3-vl"), checkpoint_of(template, tmp_path)
    (made,) = behind_transformers(before + UNREADABLE, checkpoint=checkpoint).generate([[]], [7], 0.0, 9)
    assert of.read(made, SCREEN).first == of.read(Completion(before + UNREADABLE), SCREEN).first == Type(content="a\nb")


def test_a_reply_to_a_prompt_that_opened_thinking_is_its_text_where_nothing_ended_it(tmp_path: Path) -> None:
    of = family("qwen3-vl")
    reply = "Action: I click.\n" + of.reply("", [ACTIONS[0]], SCREEN)
    model = behind_transformers(reply, None, f"{PROMPT}<think>\n", checkpoint_of(OPENS, tmp_path))
    for made in model.generate([[]] * 9, [0] * 9, 0.0, 9):
        there, here = of.read(made, SCREEN), of.read(Completion(reply), SCREEN)
        assert (there.first, there.thought) == (here.first, here.thought) and there.first == ACTIONS[0]


OPENING = [
    "{{- '<|im_start|>assistant\\n<think>\\n' }}",
    "{{- '<|im_start|>assistant\\n' }}{{- '<think>\\n' if not enabled else '' }}",
    "{%- set open = '<think>\\n' %}{{- '<|im_start|>assistant\\n' + open }}{# not '</think>' #}",
    "<|im_start|>assistant\n<think>\n{# of add_generation_prompt #}",
]


@pytest.mark.parametrize("opening", OPENING)
def test_thinking_that_ended_with_nothing_behind_it_is_no_action_wherever_it_was_opened(
    opening: str, tmp_path: Path
) -> None:
    of = family("qwen3-vl")
    thinking = "Perhaps " + of.reply("", [ACTIONS[0]], SCREEN) + " no, wait.\n"
    template = THINKS.replace("{{- '<|im_start|>assistant\\n' }}", opening)
    for end, action in (("</think>", None), ("</think>\n\n", None), ("", ACTIONS[0])):
        model = behind_transformers(thinking + end, None, f"{PROMPT}<think>\n", checkpoint_of(template, tmp_path))
        (made,) = model.generate([[]], [7], 0.0, 9)
        assert of.read(made, SCREEN).first == of.read(Completion(thinking + end), SCREEN).first == action


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thinking_alone_of_a_server_that_hides_its_end_is_no_action_and_refused_in_the_end(
    field: str, tmp_path: Path, sentence: Sentences
) -> None:
    of, checkpoint = family("qwen3-vl"), checkpoint_of(OPENS, tmp_path)
    message = {"role": "assistant", "content": None, field: "Perhaps " + of.reply("", [ACTIONS[0]], SCREEN)}
    policy = PolicyConfig(server=ServerConfig(url="http://model.test/v1", retries=0))
    model = ServerModel(checkpoint, policy, "p", httpx.MockTransport(lambda _: choices(message)))
    (made,) = model.generate([[]], [7], 0.0, 99)
    assert of.read(made, SCREEN).first is None
    with sentence.raises(FlywheelError, hint="--reasoning-parser"):
        model.generate([[]] * 30, [7] * 30, 0.0, 99)


def test_a_reply_of_many_thoughts_is_put_together_in_linear_time() -> None:
    took = list[float]()
    for number in (4_000, 32_000):
        pieces = [("thought", "a"), ("text", "b")] * number
        begun = time.process_time()
        assert reply_of({"pieces": pieces}).text.count("<think>") == number
        took.append(time.process_time() - begun)
    assert took[1] < 25 * took[0] + 0.5


def test_a_reply_that_opened_thinking_itself_and_never_ended_it_is_no_action(tmp_path: Path) -> None:
    of = family("qwen3-vl")
    reply = "<think>\nPerhaps " + of.reply("", [ACTIONS[0]], SCREEN)
    (made,) = behind_transformers(reply, checkpoint=checkpoint_of(THINKS, tmp_path)).generate([[]], [7], 0.0, 9)
    assert of.read(made, SCREEN).first is of.read(Completion(reply), SCREEN).first is None


def test_thinking_without_an_end_is_left_open_and_holds_no_end_of_a_turn() -> None:
    message = completed_by_transformers("<think>\nMaybe.", "qwen3_vl")
    assert client(choices(message)).complete({})["text"].strip() == "<think>\nMaybe."
    body = streamed_by_transformers("<think>\nMaybe.", "qwen3_vl")
    assert client(events(body)).complete({})["text"].strip() == "<think>\nMaybe."


def test_a_stream_that_fails_otherwise_is_tried_again_and_is_no_reply(sentence: Sentences) -> None:
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return events('data: {"choices": [{"delta": {"content": "Hm"}}]}\n\ndata: {"error": "CUDA out of memory"}\n\n')

    config = ServerConfig(url="http://model.test/v1", retries=1)
    with sentence.raises(NoAnswer):
        OpenAIClient(endpoint_of(config), httpx.MockTransport(handler)).complete({})
    assert len(asked) == 2
    with sentence.raises(NoAnswer):
        client(events('data: {"choices": [{"delta": {"content": "Hm"}}]}\n\n')).complete({})


def documented() -> dict[str, Any]:
    """The template that docs/served-replies.md gives."""
    page = (Path(__file__).parents[4] / "docs" / "served-replies.md").read_text()
    return json.loads(page.partition("```json\n")[2].partition("```")[0])


@pytest.mark.parametrize(("model_type", "name"), OF_QWEN)
def test_with_the_documented_template_transformers_serve_gives_every_reply_whole(
    model_type: str, name: str, tmp_path: Path
) -> None:
    tokenizer().save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **documented()}))
    read: Any = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    model: Any = SimpleNamespace(config=SimpleNamespace(model_type=model_type))
    for reply in [*written(name), "Hm\n<tool_call>\n{'action'", " <think>x</tool_call> \n"]:
        content, *others = parse_assistant_message(read, model, ids_of(f"{reply}<|im_end|>"), ids_of(PROMPT), reply)
        assert [content, *others] == [reply, None, None]


def test_where_a_server_gives_the_tokens_a_split_reply_is_their_text(tmp_path: Path) -> None:
    tokenizer().save_pretrained(tmp_path)
    reply = "<think>Maybe</think> \n Hm\n<tool_call> {'name':  'computer_use'} </tool_call>"
    ids = ids_of(f"{reply}<|im_end|>")
    entries = {"content": [{"token": str(one), "logprob": -0.5} for one in ids]}
    message = {"content": "Hm", "reasoning": "Maybe", "tool_calls": []}
    choice = client(choices(message, token_ids=ids, logprobs=entries)).complete({})
    made = _completion(choice, tmp_path)
    assert made.text == reply and made.token_ids == tuple(ids)
    assert _completion(choice, HERE).text == "<think>\nMaybe\n</think>\nHm"


def test_arguments_that_are_no_json_stay_as_they_were() -> None:
    call = {"function": {"name": "computer_use", "arguments": '{"action": "wait"'}}
    reply = reply_of({"content": None, "tool_calls": [call]})
    assert reply.text == '<tool_call>\n{"name": "computer_use", "arguments": {"action": "wait"}\n</tool_call>'


def test_a_judge_s_answer_is_its_content_without_what_it_thought() -> None:
    message = {"content": '{"score": 1}', "reasoning_content": "Hm."}
    assert client(choices(message)).chat({})["text"] == '{"score": 1}'


@pytest.mark.parametrize("more", [{"reasoning": {"a": 1}}, {"tool_calls": [{"id": "x"}]}, {"reasoning_content": ["a"]}])
def test_a_judge_s_answer_needs_nothing_but_its_content(more: dict[str, Any]) -> None:
    assert client(choices({"content": "Yes.", **more})).chat({})["text"] == "Yes."
    with pytest.raises(NoAnswer):
        client(choices({"content": "Yes.", **more})).complete({})


@pytest.mark.parametrize("message", [{}, {"content": [1]}, {"content": {"a": 1}}, None])
def test_a_judge_s_answer_without_a_text_is_no_answer(message: Any) -> None:
    with pytest.raises(NoAnswer):
        client(choices(message)).chat({})


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"content": "", "reasoning_content": None}, "they are empty"),
        ({"content": None, "reasoning": "Action: wait()"}, "is all thinking"),
    ],
)
def test_a_server_that_keeps_every_reply_is_refused_before_the_policy_acts(
    message: Any, told: str, sentence: Sentences
) -> None:
    kept = Sampling(client(choices(message)))
    with sentence.raises(FlywheelError, "response_template", told, hint="--reasoning-parser"):
        require_sampling(lambda body, heat: kept.ask(body, heat, HERE), {"model": "m"})


@pytest.mark.parametrize("first", [0, 1])
def test_a_server_whose_first_answers_hold_no_reply_is_refused_and_later_ones_are_the_policy_s(
    first: int, sentence: Sentences
) -> None:
    answers = [choices({"content": "Action: wait()"}, "length")] * 2
    answers += [choices({"content": "Action: wait()"})] * first + [choices({"content": ""})] * 8
    given = iter(answers)
    policy = PolicyConfig(server=ServerConfig(url="http://model.test/v1", retries=0))
    model = ServerModel(HERE, policy, "policy-0001", httpx.MockTransport(lambda _: next(given)))
    if first:
        assert [one.text for one in model.generate([[]] * len(answers), [0] * len(answers), 0.0, 9)][-1] == ""
        return
    with sentence.raises(FlywheelError, hint="--reasoning-parser"):
        model.generate([[]] * len(answers), [0] * len(answers), 0.0, 9)


def test_many_ends_of_a_turn_in_thinking_are_removed_in_time_as_its_length() -> None:
    began = time.monotonic()
    thought = "Hm. " + "<|im_end|> " * 20000
    assert reply_of({"reasoning": thought}).text == "<think>\nHm. "
    assert reply_of({"reasoning": f"{thought}."}).text == f"<think>\n{thought}."
    assert time.monotonic() - began < 1
