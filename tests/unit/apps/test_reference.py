"""The reference pages, and the config that `flywheel init` writes, are those of the code."""

import re
import tomllib

import pytest

from apps.commented import commented
from apps.completion import KEYS
from apps.reference import DOCS, config_keys, config_page, tables_page
from schemas.config import Config, config_of, load_config


def uncommented(text: str) -> str:
    return re.sub(r"^#(?! )", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ['environments={"fake":{},"more fakes":{"kind":"fake","sandboxes":3}}', 'suite.tasks=["fake/click-one"]',
         "suite.held_out=[]", "suite.practice=[]", 'suite.max_steps={"fake/click-one":3}', "train.lora.rank=4"],
        ["name=\"quotes \\\" # and \\n\\u007f\"", 'policy.server.url="http://h/v1"',
         'policy.server.extra={"a key":[1,2.5,true,"x"],"deep":{"er":{}}}'],
    ],
)  # fmt: skip
def test_the_file_is_the_config_it_was_made_from_with_its_comments_and_without(overrides: list[str]) -> None:
    config = load_config("laptop", overrides, {})
    for text in (commented(config), commented(config, full=False)):
        for written in (text, uncommented(text)):
            assert config_of(tomllib.loads(written)) == config


def test_the_short_file_has_the_keys_that_are_set_and_those_that_most_users_set() -> None:
    config = load_config("laptop", ["evaluate.seeds=7", 'environments={"mine":{"kind":"fake"}}'], {})
    lines = commented(config, full=False).splitlines()
    assert {'environments.mine.kind = "fake"', "evaluate.seeds = 7", '#train.method = "sft"'} <= {*lines}
    assert not any(name in line for line in lines for name in ("budget", "tolerance"))


@pytest.mark.parametrize("profile", ["laptop", "smoke", "miniwob"])
def test_the_short_file_has_26_lines_and_takes_sections_of_the_documents(profile: str) -> None:
    text = commented(load_config(profile, [], {}), full=False)
    assert text.count("\n") <= 26
    more = tomllib.loads(text + '[environments.mine]\nkind = "fake"\n')
    assert more["environments"]["mine"] == {"kind": "fake"}


def test_every_key_is_there_with_what_it_means() -> None:
    lines = commented(load_config("laptop", (), {})).splitlines()
    for name, section in Config.model_fields.items():
        assert f"[{name}]" in lines or name == "environments" or any(re.match(rf"#?{name} = ", one) for one in lines)
        assert section is not None
    at = lines.index("#tolerance = 0.03")
    assert lines[at - 1].startswith("# rejected candidate's training is lost")
    assert "[environments.miniwob]" in lines and "# endpoint is not set" in lines
    assert all(len(line) <= 118 for line in lines if line.startswith("# "))


def test_the_reference_pages_say_what_the_code_says() -> None:
    assert KEYS.read_text() == config_keys(), "apps/config_keys.txt is old: run `python -m apps.reference`"
    for name, page in (("tables.md", tables_page()), ("config.md", config_page())):
        assert (DOCS / name).read_text() == page, f"docs/{name} is old: run `python -m apps.reference`"
