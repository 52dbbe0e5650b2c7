"""`flywheel parse`: what is printed of replies, and what is refused."""

import io
import json
import re
from pathlib import Path
from typing import get_args

import pytest

from schemas.config.policy import PolicyConfig
from tests.command import Call

CLICK = '{"name":"computer_use","arguments":{"action":"left_click","coordinate":[960,540]}}'


def checkpoint(folder: Path) -> str:
    limits = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 1003520}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "Qwen2VLImageProcessor", **limits})
    )
    return str(folder)


def test_a_reply_is_printed_as_thought_actions_and_error(flywheel: Call) -> None:
    reply = "Thought: x\nAction: click(point='<point>200 300</point>')\n\nwait()"
    code, out, err = flywheel("parse", "--family", "doubao", "--screen", "1920x1080", "--json", reply)
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "thought": "x",
        "actions": [{"type": "click", "x": 0.2, "y": 0.3}, {"type": "wait"}],
        "error": None,
    }


def test_replies_are_read_from_standard_input_and_a_folder_that_is_not_there_is_named(
    flywheel: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--family", "qwen3-vl", "--screen", "1920x1080", "--file", "-", "--json")
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(CLICK) + "\n"))
    code, out, _ = flywheel("parse", *at)
    assert code == 0 and json.loads(out)["actions"][0]["x"] == 0.96
    code, _, err = flywheel("parse", *at, "--model", str(tmp_path / "nowhere"))
    assert code == 2 and "`--model" in err and "policy.base" not in err


def test_a_file_gives_a_line_per_reply_and_the_models_own_limits_count(flywheel: Call, tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text(json.dumps({"raw_text": CLICK}) + "\n" + json.dumps("nothing") + "\n")
    at = ("--family", "qwen2.5-vl", "--screen", "1920x1080", "--file", str(file), "--json")
    code, out, err = flywheel("parse", *at, "--model", checkpoint(tmp_path))
    read, other = (json.loads(line) for line in out.splitlines())
    assert (code, err) == (0, "")
    assert (read["actions"][0]["x"], read["actions"][0]["y"]) == pytest.approx((960 / 1316, 540 / 728))
    assert other["actions"] == [] and "no tool call" in other["error"]
    published = flywheel("parse", *at)
    assert json.loads(published[1].splitlines()[0])["actions"][0]["x"] == pytest.approx(960 / 1932)
    assert "--model DIR" in published[2]


def test_a_reply_is_one_line_whatever_its_thought_and_its_text_hold(flywheel: Call) -> None:
    at = ("parse", "--family", "doubao", "--screen", "1920x1080")
    code, out, _ = flywheel(*at, "Thought: One.\nTwo.\u2028Three.\u3000Four.\nAction: type(content='a\\nb')")
    assert (code, out) == (0, "One.\\nTwo.\\u2028Three.\u3000Four. -> type=type content=a\\nb\n")
    code, out, _ = flywheel(*at, "Thought: One.\nAction: fly('a\nb')")
    assert code == 0 and out.count("\n") == 1 and "no action" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--family", "qwen3-vl", "--screen", "1920x1080"), "TEXT or --file"),
        (("--family", "nope", "--screen", "9x9", "x"), "--family"),
        (("--screen", "9x9", "x"), "--family"),
        (("--family", "qwen3-vl", "--screen", "wide", "x"), "--screen wide"),
        (("--family", "qwen2.5-vl", "--screen", "10x2100", "x"), "ratio 210"),
        (("--family", "holo-2", "--template", "mobile", "--screen", "9x9", "x"), "policy.template"),
        (("--family", "qwen3-vl", "--screen", "9x9", "--file", "/nope"), "/nope"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(flywheel: Call, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = flywheel("parse", *arguments, "--json")
    assert (code, out) == (2, "") and said in err


def test_a_screen_is_needed_for_pixels_alone(flywheel: Call) -> None:
    code, out, err = flywheel("parse", "--family", "doubao", "Action: click(point='<point>200 300</point>')")
    assert (code, err) == (0, "") and "x=0.2000 y=0.3000" in out
    code, _, err = flywheel("parse", "--family", "qwen2.5-vl", CLICK)
    assert code == 2 and "--screen" in err


@pytest.mark.parametrize(
    ("point", "noted"), [("0.5, 0.3", True), ("0.5, 30", False), ("0, 0", False), ("50, 30", False)]
)
def test_a_point_below_a_pixel_is_noted_as_a_fraction(flywheel: Call, point: str, noted: bool) -> None:
    reply = f"## Action:\nClick.\n## Code:\n```python\npyautogui.click({point})\n```"
    code, out, err = flywheel("parse", "--family", "opencua", "--screen", "1920x1080", "--json", reply)
    assert code == 0 and json.loads(out)["actions"] and ("opencua-qwen2" in err) == noted


def test_an_unknown_template_names_the_family_as_the_config_does(flywheel: Call) -> None:
    code, _, err = flywheel("parse", "--family", "tiny", "--template", "mobile", "x")
    assert code == 2 and "the family tiny" in err


def test_a_line_that_holds_no_reply_is_named(flywheel: Call, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('"wait()"\n{"other": 1}\n')
    given = ("--family", "ui-tars-1.0", "--screen", "9x9", "--file", str(tmp_path / "bad.jsonl"), "--json")
    code, _, err = flywheel("parse", *given)
    assert code == 2 and "line 2" in err


@pytest.mark.parametrize("marked", [True, False])
def test_a_file_of_replies_may_begin_with_a_byte_order_mark(flywheel: Call, tmp_path: Path, marked: bool) -> None:
    file = tmp_path / "replies.jsonl"
    line = json.dumps("Action: wait()")
    file.write_text(f"{line}\n{line}\n", "utf-8-sig" if marked else "utf-8")
    at = ("--family", "ui-tars-1.0", "--screen", "9x9", "--file", str(file), "--json")
    code, out, err = flywheel("parse", *at)
    assert (code, err, len(out.splitlines())) == (0, "", 2)


def test_an_unknown_family_or_file_is_named_before_a_missing_screen(flywheel: Call, tmp_path: Path) -> None:
    assert "nosuch" in flywheel("parse", "--family", "nosuch", "x")[2]
    code, _, err = flywheel("parse", "--family", "glm", "--file", str(tmp_path / "none.jsonl"))
    assert code == 2 and "none.jsonl`: there is no such file" in err


def test_auto_reads_as_the_family_of_a_checkpoint_and_needs_one(flywheel: Call, tmp_path: Path) -> None:
    code, _, err = flywheel("parse", "--family", "auto", "x")
    assert code == 2 and "`--family auto` chooses the family of a checkpoint" in err and "--model DIR" in err
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
    (tmp_path / "tokenizer_config.json").write_text("<tool_call>")
    at = ("--family", "auto", "--screen", "1920x1080", "--json", "--model", checkpoint(tmp_path))
    code, out, err = flywheel("parse", *at, CLICK)
    assert code == 0 and json.loads(out)["actions"][0]["x"] == pytest.approx(960 / 1316)
    assert "has the family qwen2.5-vl" in err
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava"}))
    assert "no family is known" in flywheel("parse", *at, CLICK)[2]


@pytest.mark.parametrize("content", ["", "\n", "  \n\n"])
def test_an_input_without_a_reply_is_named(
    flywheel: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    at = ("parse", "--family", "qwen3-vl", "--screen", "1920x1080", "--file")
    monkeypatch.setattr("sys.stdin", io.StringIO(content))
    code, out, err = flywheel(*at, "-")
    assert (code, out) == (2, "") and "`--file -`: standard input has no reply" in err
    file = tmp_path / "replies.jsonl"
    file.write_text(content)
    code, out, err = flywheel(*at, file)
    assert (code, out) == (2, "") and f"`--file {file}`" in err


def test_the_help_names_every_template(flywheel: Call) -> None:
    _, out, _ = flywheel("parse", "--help")
    choices = get_args(PolicyConfig.model_fields["template"].annotation)
    assert all(re.search(rf"\b{name}\b", out) for name in choices)


FIND = "<tool_call>\n<function=search>\n<parameter=query>\n5\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_call_of_a_function_is_read_with_the_list_of_functions(flywheel: Call, tmp_path: Path, wrapped: bool) -> None:
    tool = {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}
    listed = [{"type": "function", "function": tool} if wrapped else tool]
    (tmp_path / "tools.json").write_text(json.dumps(listed))
    read = ("parse", FIND, "--family", "qwen3.5", "--json")
    code, out, _ = flywheel(*read, "--tools", str(tmp_path / "tools.json"))
    assert (code, json.loads(out)["actions"]) == (
        0, [{"type": "tool", "name": "search", "arguments": {"query": "5"}}]
    )  # fmt: skip
    code, out, _ = flywheel(*read)
    assert code == 0 and "there is no tool 'search'" in json.loads(out)["error"]


@pytest.mark.parametrize(
    ("text", "family", "named"),
    [
        ("{", "qwen3.5", "cannot be read"),
        ("{}", "qwen3.5", "holds no list"),
        ('["search"]', "qwen3.5", "policy.tools"),
        ('[{"name": "my tool"}]', "qwen3.5", "policy.tools"),
        ('[{"name": "search"}]', "fara-1.5", "has no place for them"),
    ],
)
def test_a_list_of_functions_that_cannot_be_used_is_refused(
    flywheel: Call, tmp_path: Path, text: str, family: str, named: str
) -> None:
    (tmp_path / "tools.json").write_text(text)
    code, out, err = flywheel("parse", FIND, "--family", family, "--tools", str(tmp_path / "tools.json"))
    assert code == 2 and out == "" and named in err
