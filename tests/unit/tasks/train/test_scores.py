"""A teacher's scores of replies: asked as SGLang takes them, compared with what was sent, and trained on."""

import base64
import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import models.serving.openai
from learning.data.files import Rollout, ScoredReply, read_scored, write_scored
from learning.data.sample import Screenshots, write_screenshots
from learning.engines.engine import SampleRef
from learning.engines.fsdp.chats import Chats
from learning.job import Job
from learning.learner import Learner
from models.families.processor import read_limits
from models.families.screen import picture_png
from models.random_vlm import build_random
from models.serving.openai import NoAnswer, Unready, charged, charged_since
from models.serving.teacher import ScoreRequest, Teacher
from models.tiny.layout import read_config
from schemas.config.training import DistillConfig
from schemas.failure import FlywheelError, UsageError
from tasks.train.scores import request_of
from tests.fixtures.sentences import Sentences
from tests.teachers import FakeTeacher
from tests.unit.learning.chats import POLICY, TRAIN
from tests.unit.learning.replies import model, rolled_out
from tests.unit.learning.samples import WORDS

CONFIG = DistillConfig(url="http://teacher.test/v1", model="big", retries=1, epochs=1.0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.serving.openai, "PAUSES", (0.0, 0.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a policy, its replies' screenshots, and a larger model with the same tokenizer."""
    folder = tmp_path_factory.mktemp("distilled")
    texts = [f'Click on the "{word}" button.' for word in WORDS] * 8
    build_random("qwen3_vl", texts, 1, folder / "larger", hidden=96)
    build_random("qwen3_vl", ["Other words, such as quartz and jinx."] * 8, 1, folder / "foreign")
    build_random("qwen2_5_vl", texts, 1, folder / "patches")
    return folder


@pytest.fixture(scope="module")
def replies(folder: Path) -> list[Rollout]:
    weights = model(folder, "qwen3_vl") / "model.safetensors"
    sharper = {name: one.float() * (12 if name == "lm_head.weight" else 1) for name, one in load_file(weights).items()}
    save_file(sharper, weights, metadata={"format": "pt"})  # so that a few tokens have most of the probability
    config = weights.with_name("config.json")
    config.write_text(config.read_text().replace("bfloat16", "float32"))  # some processors compute bf16 in bf16
    rollouts, pngs = rolled_out(folder / "qwen3_vl", 12, temperature=1.0)
    write_screenshots(folder / "screenshots.parquet", pngs)
    return rollouts


def requests(folder: Path, replies: Sequence[Rollout]) -> list[ScoreRequest]:
    screenshots = Screenshots(folder / "screenshots.parquet")
    chats, limits = Chats(folder / "qwen3_vl", POLICY, screenshots, 0), read_limits(folder / "qwen3_vl")
    return [
        replace(request_of(chats, one), pictures=[picture_png(screenshots.png(sha), limits) for sha in one.screenshots])
        for one in replies
    ]


def teacher(fake: FakeTeacher, **changed: object) -> Teacher:
    return Teacher(CONFIG.model_copy(update=changed), fake.transport())


def scored(folder: Path, replies: Sequence[Rollout], fake: FakeTeacher) -> list[ScoredReply]:
    asked = teacher(fake)
    found = [asked.score(one) for one in requests(folder, replies)]
    return [
        ScoredReply(**{field.name: getattr(one, field.name) for field in fields(one)}, teacher=scores or ())
        for one, scores in zip(replies, found, strict=True)
    ]


def learner(folder: Path, samples: Sequence[ScoredReply]) -> Learner:
    write_scored(folder / "scored.arrow", samples)
    train = TRAIN.model_copy(update={"method": "opd", "opd": CONFIG, "batch": len(samples), "warmup": 0, "decay": 0.0})
    job = Job(
        parent=folder / "qwen3_vl",
        out=folder / "out",
        samples=folder / "scored.arrow",
        screenshots=folder / "screenshots.parquet",
        steps=1,
        learning_rate=1e-3,
        policy=POLICY,
        train=train,
    )
    return Learner(job, read_scored(job.samples), 0, 1)


def test_a_request_has_the_trainers_tokens_with_one_for_each_picture(folder: Path, replies: list[Rollout]) -> None:
    fake = FakeTeacher(folder / "larger")
    before, asked = charged(), requests(folder, replies)
    scores = [teacher(fake).score(one) for one in asked]
    assert [len(one or ()) for one in scores] == [len(one.token_ids) for one in replies]
    assert charged_since(before) == {"train": sum(one.length for one in asked)}
    for one, reply, body in zip(asked, replies, fake.scored, strict=True):
        assert len(body["image_data"]) == len(reply.screenshots) == 1 + (reply.step > 0)
        assert tuple(body["input_ids"][-len(reply.token_ids) :]) == reply.token_ids
        assert body["logprob_start_len"] == one.length - len(reply.token_ids) - 1 and one.length > len(
            body["input_ids"]
        )
        assert body["sampling_params"] == {"max_new_tokens": 0, "temperature": 1.0}


@pytest.mark.slow
def test_a_teacher_that_is_the_policy_teaches_nothing(folder: Path, replies: list[Rollout]) -> None:
    samples = scored(folder, replies, FakeTeacher(folder / "qwen3_vl"))
    gaps = [abs(one - other) for reply in samples for one, other in zip(reply.logprobs, reply.teacher, strict=True)]
    assert max(gaps) < 1e-4
    made = learner(folder, samples)
    batch = made.engine.ready(made.prepare([SampleRef(at, at) for at in range(len(samples))]))
    made.gradient(batch)
    assert made.engine.norm() < 1e-2
    other = learner(folder, scored(folder, replies, FakeTeacher(folder / "larger")))
    other.gradient(other.engine.ready(other.prepare([SampleRef(at, at) for at in range(len(samples))])))
    assert other.engine.norm() > 1
    for one in (made, other):
        one.close()


@pytest.mark.slow
def test_the_policy_comes_nearer_to_another_teacher(folder: Path, replies: list[Rollout]) -> None:
    larger = FakeTeacher(folder / "larger")
    asked = requests(folder, replies)
    before = divergence(FakeTeacher(folder / "qwen3_vl"), larger, asked)
    made = learner(folder, scored(folder, replies, larger))
    gaps = []
    for number in range(4):
        refs = [SampleRef(number * len(replies) + at, at) for at in range(len(replies))]
        gaps.append(made.measured(made.step(made.prepare(refs), 5e-5))[1]["teacher_gap"])
    assert gaps == sorted(gaps, reverse=True)
    numbers = made.metrics()
    assert numbers["tokens"] == 4 * sum(len(one.token_ids) for one in replies) and 0 < numbers["moved"] < 1
    shutil.copytree(folder / "qwen3_vl", folder / "nearer")
    made.write(folder / "nearer")
    made.close()
    after = divergence(FakeTeacher(folder / "nearer"), larger, asked)
    assert before > 1 and after < 0.98 * before


def divergence(policy: FakeTeacher, teacher: FakeTeacher, asked: Sequence[ScoreRequest]) -> float:
    """KL(policy || teacher) over the whole vocabulary, as the mean over the replies' tokens."""
    found = list[float]()
    for one in asked:
        data = [f"data:image/png;base64,{base64.b64encode(png).decode()}" for png in one.pictures]
        body = {"input_ids": list(one.ids), "image_data": data}
        ours, theirs = (fake.shares(body)[-len(one.reply) - 1 : -1].double() for fake in (policy, teacher))
        found += (ours.exp() * (ours - theirs)).sum(-1).tolist()
    return sum(found) / len(found)


@pytest.mark.slow
def test_scores_that_do_not_belong_to_the_tokens_are_refused_before_the_first_step(
    folder: Path, replies: list[Rollout], sentence: Sentences
) -> None:
    samples = scored(folder, replies, FakeTeacher(folder / "larger"))
    with sentence.raises(FlywheelError, "t0", hint="teacher_scores"):
        learner(folder, [replace(samples[0], teacher=samples[0].teacher[1:]), *samples[1:]])


def test_a_teacher_with_the_policys_tokenizer_is_accepted(folder: Path) -> None:
    fake = FakeTeacher(folder / "larger")
    teacher(fake).require(folder / "qwen3_vl", POLICY)
    assert len(fake.probes) == len(fake.scored) == 1


@pytest.mark.parametrize("wrong", ["foreign", "patches"])
def test_a_teacher_with_another_tokenizer_or_other_patches_is_refused_by_name(
    folder: Path, wrong: str, sentence: Sentences
) -> None:
    fake = FakeTeacher(folder / wrong)
    hint = "tokenizer" if wrong == "foreign" else "image processor"
    with sentence.raises(FlywheelError, "train.opd.model", "big", hint=hint):
        teacher(fake).require(folder / "qwen3_vl", POLICY)
    assert not fake.scored


def test_another_name_than_the_servers_is_refused(folder: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError, "train.opd.model", "big"):
        teacher(FakeTeacher(folder / "larger"), model="bigger").require(folder / "qwen3_vl", POLICY)


def test_a_server_without_generate_is_refused(folder: Path, sentence: Sentences) -> None:
    fake = FakeTeacher(folder / "larger")
    fake.paths = ("/v1/models",)
    with sentence.raises(FlywheelError, "train.opd.url", "/generate", hint="SGLang"):
        teacher(fake).require(folder / "qwen3_vl", POLICY)


def test_a_wrong_number_of_log_probabilities_is_an_error_and_no_score(
    folder: Path, replies: list[Rollout], sentence: Sentences
) -> None:
    fake = FakeTeacher(folder / "larger", missing=1)
    with sentence.raises(FlywheelError, "train.opd.url"):
        teacher(fake).score(requests(folder, replies[:1])[0])


def test_replies_that_the_server_reads_as_other_tokens_have_no_score(folder: Path, replies: list[Rollout]) -> None:
    fake = FakeTeacher(folder / "larger", retokenizes=True)
    (request,) = requests(folder, replies[:1])
    assert teacher(fake).score(request) is None  # random tokens are not those that their text encodes to
    assert teacher(fake).score(replace(request, length=request.length + 99)) is None  # far longer than it is read
    assert len(fake.scored) == 2


@pytest.mark.parametrize("place", [0, -1])
def test_a_reply_with_a_token_of_a_picture_is_sent_without_it_and_has_no_score(
    folder: Path, replies: list[Rollout], place: int
) -> None:
    picture = read_config(folder / "qwen3_vl")["image_token_id"]
    tokens = list(replies[0].token_ids)
    tokens[place] = picture
    (request,) = requests(folder, [replace(replies[0], token_ids=tuple(tokens))])
    assert list(request.ids).count(picture) == 1
    assert teacher(FakeTeacher(folder / "larger")).score(request) is None


def test_a_server_that_fails_is_asked_again_and_then_reported(folder: Path, replies: list[Rollout]) -> None:
    fake = FakeTeacher(folder / "larger")
    fake.dead_after = 0
    with pytest.raises(NoAnswer, match="the worker died"):
        teacher(fake).score(requests(folder, replies[:1])[0])
    assert len(fake.scored) == 2


def test_a_score_that_the_server_aborts_is_asked_for_again(folder: Path, replies: list[Rollout]) -> None:
    """SGLang answers 200 with part of the log probabilities if its weights change or `/abort_request` ends it."""
    fake = FakeTeacher(folder / "larger")
    (request,) = requests(folder, replies[:1])
    whole = teacher(fake).score(request)
    fake.scored.clear()
    fake.aborts = 1
    assert teacher(fake).score(request) == whole and len(fake.scored) == 2
    fake.scored.clear()
    fake.aborts = 9
    with pytest.raises(Unready, match="aborted"):
        teacher(fake).score(request)
