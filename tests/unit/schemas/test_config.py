"""The config is closed, and what comes later wins: TOML, then the environment, then words."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from schemas.config import config_of, load_config
from schemas.config.load import refuse_renamed
from schemas.config.profiles import config_file
from schemas.config.training import GroupConfig, TrainConfig
from schemas.failure import EXIT_USAGE, UsageError
from tests.fixtures.sentences import Sentences

TOML = """
name = "small"
[suite]
tasks = ["click-test"]
[train]
steps = 10
batch = 4
warmup = 1
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(TOML)
    return file


def test_words_win_over_the_environment_and_that_over_the_file(path: Path) -> None:
    environ = {"FLYWHEEL__TRAIN__BATCH": "8", "FLYWHEEL__TRAIN__STEPS": "20", "OTHER": "1"}
    config = load_config(path, ["train.steps=30"], environ)
    assert (config.train.warmup, config.train.batch, config.train.steps) == (1, 8, 30)


def test_what_nobody_sets_has_its_default(path: Path) -> None:
    assert load_config(path, environ={}).curriculum.method == "learnable"


def test_values_are_read_as_json_and_else_as_text(path: Path) -> None:
    words = ['suite.tasks=["a", "b"]', "lake.uri=s3://bucket/lake", "environments.miniwob.browser=null"]
    config = load_config(path, words, {})
    assert config.suite.tasks == ("a", "b")
    assert config.lake.uri == "s3://bucket/lake"
    assert config.environments["miniwob"].model_dump()["browser"] is None


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("train.step=3", r"unknown key `train\.step`; did you mean `steps`"),
        ("train.lr=1", r"unknown key `train\.lr`; did you mean `learning_rate`\?"),
        ("train.ppo.lr=1", r"unknown key `train\.ppo\.lr`; did you mean `learning_rate`\?"),
        ("policy.path=x", r"unknown key `policy\.path`; did you mean `base`\?"),
        ("lake.path=x", r"unknown key `lake\.path`; did you mean `uri`\?"),
        (
            "train.processes=0",
            r"Config: `train\.processes`: must be at least 1, or 'auto' \(got 0\)\. Set .* to 1 or more",
        ),
        (
            "train.ppo.policy_lambda=2",
            r"Config: `train\.ppo\.policy_lambda`: [^`]*'length'[^`]* \(got 2\)\. docs/config\.md",
        ),
        ("suite.max_steps.click-test=0", r"`suite\.max_steps\.click-test`: .*\(got 0\)"),
        ("train.dual_clip=1", r"unknown key `train\.dual_clip`; did you mean `train\.group\.dual_clip` or"),
        (
            "train.group.dual_clip=1",
            r"Config: `train\.group\.dual_clip`: must be above 1 \(got 1\)\. Set .* to more than 1\.$",
        ),
        (
            'environments={"html":{"browser_count":2}}',
            r"`environments\.html\.browser_count`; did you mean `browsers`\?",
        ),
        ('environments={"html":{"num_pages":2}}', r"`environments\.html\.num_pages`; did you mean `pages`\?"),
        (
            'environments={"html":{"tasks":{"form":{"instruction":"Send.","max_stps":3}}}}',
            r"Unknown key `environments\.html\.tasks\.form\.max_stps`; did you mean `max_steps`\?",
        ),
        (
            'environments={"html":{"tasks":{"form":{"instruction":"Send.","zzz":3}}}}',
            r"`environments\.html\.tasks\.form\.zzz`; known: instruction, .*, deterministic, threshold, graded\.",
        ),
        ("trian.steps=3", r"unknown key `trian`; did you mean `train`"),
        ("zzz=3", r"unknown key `zzz`; docs/config\.md has all"),
        ("train.batch=0", r"`train\.batch`: must be at least 1.*got 0"),
        ("train.batch=many", r"`train\.batch`: .*integer.*got 'many'"),
        ("promote.resolution=5", r"`promote`: tolerance \+ resolution is 5\.03, and success differs by less than 1"),
        ("promote.alpha=1e-17", r"`promote\.alpha`: must be at least 0.000001 \(got 1e-17\)"),
        ("traces.endpoint=notaurl", r"`traces\.endpoint`: .*got 'notaurl'"),
        ("curriculum.method=magic", r"`curriculum\.method`: .*'learnable' or 'uniform'.*got 'magic'"),
        ("train.options.focus=1", r"`train\.options`: method sft has none"),
        ("policy.options.speed=1", r"policy\.options is set, and policy\.backend is auto: only your own backend"),
        ("train", r"`train` is not of the form section\.key=value"),
        ("name.first=x", r"`name` is a value, not a section"),
        ("=3", r"`=3` is not of the form section\.key=value"),
        ("train.=3", r"`train\.=3` is not of the form section\.key=value"),
        ("train=3", r"`train` is a section, not a value \(got 3\)\. Set a key of it, such as `train\.learning_rate`"),
        ("train.group=3", r"`train\.group` is a section, not a value"),
        ("steps=3", r"unknown key `steps`; did you mean `train\.steps`"),
        ("suite.tasks=click-test", r"`suite\.tasks` should be a list, such as 'suite\.tasks=\[\"click-test\"\]' \(got"),
        (
            "suite.tasks=[click-test]",
            r"`suite\.tasks`: \[click-test\] is not JSON\. Put single quotes around the whole",
        ),
        ("environments={fake:{}}", r"`environments`: \{fake:\{\}\} is not JSON\. Put single quotes"),
        ("train={steps:3}", r"`train`: \{steps:3\} is not JSON\. Put single quotes"),
        (
            "environment.kind=fake",
            r"'environments=\{\"fake\":\{\}\}' in place",
        ),
        ("policy.hidden=97", r"`policy\.hidden`: .*multiple of 32.*got 97"),
        ("policy.hidden=0", r"`policy\.hidden`: must be at least 32.*got 0"),
        ("policy.vision_hidden=96", "vision_hidden is 96, and without window it is a multiple of 64: take 128"),
        ("train.learning_rate=Infinity", r"`train\.learning_rate`: .*finite number.*got inf"),
        ("train.learning_rate=inf", r"`train\.learning_rate`: .*finite number.*got 'inf'"),
        ("train.learning_rate=nan", r"`train\.learning_rate`: .*got 'nan'"),
        ("lake.uri=", r"`lake\.uri`: .*at least 1 character.*got ''"),
        ("judge.kind=endpoint", r"`judge\.options\.url` is not set\. Set it: judge\.options\.url=\.\.\."),
    ],
)
def test_a_wrong_word_is_refused_with_the_field_and_the_hint(path: Path, word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        load_config(path, [word], {})
    assert refused.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("kind", ["1", "true", "null", "[1]", "{}"])
def test_the_kind_of_an_environment_is_a_text(path: Path, kind: str) -> None:
    with pytest.raises(UsageError, match=r"`environments\.x\.kind`") as raised:
        load_config(path, [f"environments.x.kind={kind}"], {})
    assert raised.value.hint == "Write, for example, environments.x.kind=miniwob."


def test_a_wrong_variable_is_refused_as_a_wrong_word_is(path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError, "`uri`"):
        load_config(path, environ={"FLYWHEEL__LAKE__URL": "x"})


def test_a_variable_that_lacks_an_underscore_is_refused_with_the_name_that_is_read(
    path: Path, sentence: Sentences
) -> None:
    with sentence.raises(UsageError, "FLYWHEEL_TRAIN__STEPS", hint="FLYWHEEL__TRAIN__STEPS"):
        load_config(path, environ={"FLYWHEEL_TRAIN__STEPS": "4"})
    load_config(path, environ={"FLYWHEEL_HOME": "x", "FLYWHEEL_DESK_TOKEN": "x", "FLYWHEEL__TRAIN__STEPS": "4"})


def test_a_variable_that_names_a_section_is_blamed_itself(path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError, "FLYWHEEL__TRAIN", hint="train.learning_rate"):
        load_config(path, ["train.steps=5"], {"FLYWHEEL__TRAIN": "3"})


def test_an_old_key_is_refused_with_its_new_name_or_with_what_to_write(sentence: Sentences) -> None:
    renamed = {"a.old": "b.new", "a.gone": "not needed any more"}
    with sentence.raises(UsageError, "`a.old`", "`b.new`"):
        refuse_renamed({"a": {"old": 1, "gone": None}}, renamed)
    refuse_renamed({"a": {"other": 1}}, renamed)


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError, "none.toml", hint="--config"):
        load_config(tmp_path / "none.toml", environ={})


def test_a_broken_file_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("name = \n")
    with pytest.raises(UsageError, match="line 1"):
        load_config(tmp_path / "broken.toml", environ={})


def test_a_config_cannot_be_changed(path: Path) -> None:
    config = load_config(path, environ={})
    with pytest.raises(ValidationError, match="frozen"):
        config.train.steps = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_a_resolved_config_reads_back_as_itself(path: Path) -> None:
    config = load_config(path, environ={})
    assert type(config).model_validate_json(config.canonical()) == config


def test_pass_at_k_of_all_plays_of_a_group_is_refused_because_it_compares_nothing() -> None:
    assert GroupConfig(size=4, k=4).advantage == "pass1"
    for advantage in ("passk", "full"):
        with pytest.raises(ValueError, match="k is 4"):
            GroupConfig.model_validate({"size": 4, "k": 4, "advantage": advantage})


@pytest.mark.parametrize(("method", "temperature"), [("sft", 0.9), ("grpo", 0.4), ("rft", 0.4)])
def test_groups_are_rolled_out_at_a_temperature_of_their_own(method: str, temperature: float) -> None:
    train = {"method": method, "group": {"temperature": 0.4}}
    made = config_of({"suite": {"tasks": ["click-test"]}, "collect": {"temperature": 0.9}, "train": train})
    assert made.temperature == temperature


def test_none_takes_a_limit_away_in_toml_and_on_the_command_line_and_is_a_text_elsewhere(tmp_path: Path) -> None:
    assert load_config(None, ["train.group.most_mismatch=none"], {}).train.group.most_mismatch is None
    path = tmp_path / "own.toml"
    path.write_text(
        config_file("laptop").read_text().replace("[train.group]", '[train.group]\nmost_mismatch = "none"', 1)
    )
    assert load_config(path, [], {}).train.group.most_mismatch is None
    assert load_config(None, ["name=none"], {}).name == "none"
    with pytest.raises(UsageError, match=r"train\.steps"):
        load_config(None, ["train.steps=none"], {})


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({}, 520),
        ({"steps": 20}, 20),
        ({"steps_first": 30}, 30),
        ({"steps": 20, "steps_first": 30}, 30),
    ],
)
def test_the_first_training_takes_as_many_steps_as_others_if_only_those_are_set(
    given: dict[str, int], first: int
) -> None:
    train = TrainConfig.model_validate(given)
    assert train.first == first and TrainConfig.model_validate(train.model_dump()).first == first


def test_the_tokens_of_a_reply_have_an_upper_bound() -> None:
    assert load_config("smoke", ["policy.max_new_tokens=1048576"]).policy.max_new_tokens == 2**20
    with pytest.raises(UsageError, match=r"policy\.max_new_tokens.*1048576"):
        load_config("smoke", ["policy.max_new_tokens=1000000000"])
