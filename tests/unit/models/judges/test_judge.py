"""Judges: scores in [0, 1], or none at all."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import models.serving.openai
from models.judges.endpoint import EndpointJudge, JudgeEndpointOptions
from models.judges.judge import Comparison, FakeJudge, Judge, JudgeCase, JudgeFailure, Judgement
from models.judges.registry import judge_of, version_of
from schemas.config import config_of
from schemas.config.curating import JudgeConfig
from schemas.config.section import Section
from schemas.failure import FlywheelError, UsageError

KEY = "FLYWHEEL_JUDGE_KEY"
CASE = JudgeCase('Write a note that says "ada joan".', ("Action: type(content='joan')",), (b"first", b"last"))


class Server(ThreadingHTTPServer):
    """Answers each request with the next of `answers`: (status, the model's text)."""

    def __init__(self, answers: list[tuple[int, str]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.seen: list[tuple[str, dict[str, Any], str | None]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, body, self.headers["Authorization"]))
        status, text = self.server.answers[min(len(self.server.seen), len(self.server.answers)) - 1]
        said = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.serving.openai, "PAUSES", (0.0, 0.0))


@pytest.fixture
def serve() -> Iterator[Any]:
    servers: list[Server] = []

    def start(*answers: tuple[int, str]) -> tuple[Server, EndpointJudge]:
        server = Server(list(answers))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        return server, EndpointJudge(JudgeEndpointOptions(url=url, model="orm", timeout_s=5), tries=2)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


GOOD = json.dumps({"score": 0.75, "reason": "the field shows one of the words"})


def test_the_endpoint_gets_the_text_the_screens_and_the_schema_and_its_score_is_read(serve: Any, monkeypatch) -> None:
    monkeypatch.setenv(KEY, "sesame")
    server, judge = serve((200, GOOD))
    assert judge.score([CASE]) == [Judgement(0.75, "the field shows one of the words")]
    ((path, body, authorization),) = server.seen
    assert (path, authorization, body["model"]) == ("/v1/chat/completions", "Bearer sesame", "orm")
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["score", "reason"]
    text, *pictures = body["messages"][1]["content"]
    assert CASE.instruction in text["text"] and CASE.replies[0] in text["text"]
    assert [one["image_url"]["url"] for one in pictures] == [
        "data:image/png;base64,Zmlyc3Q=",
        "data:image/png;base64,bGFzdA==",
    ]


def test_without_a_key_none_is_sent(serve: Any, monkeypatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    server, judge = serve((200, GOOD))
    judge.score([CASE])
    assert server.seen[0][2] is None


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, GOOD),
        (200, "It went well."),
        (200, '{"score": 1.5, "reason": "very good"}'),
        (200, '{"score": true, "reason": "yes"}'),
        (200, '{"score": "high", "reason": "yes"}'),
        (200, '{"score": 0.5}'),
        (200, "[1, 2]"),
        (200, '{"score": 1' + "0" * 400 + ', "reason": "endless"}'),
    ],
)
def test_an_answer_that_is_no_score_is_no_opinion_after_the_last_try(
    serve: Any, monkeypatch, status: int, text: str
) -> None:
    monkeypatch.setenv(KEY, "sesame")
    server, judge = serve((status, text))
    (judgement,) = judge.score([CASE])
    assert judgement.score is None and judgement.reason.startswith("orm: ")
    assert len(server.seen) == 2 and "sesame" not in judgement.reason


def test_a_second_try_may_succeed(serve: Any) -> None:
    _, judge = serve((503, ""), (200, GOOD))
    assert judge.score([CASE])[0].score == 0.75


def test_a_server_that_is_not_there_is_no_opinion() -> None:
    judge = EndpointJudge(JudgeEndpointOptions(url="http://127.0.0.1:9/v1", model="orm", timeout_s=2))
    (judgement,) = judge.score([CASE])
    assert judgement.score is None and "ConnectError" in judgement.reason


def test_the_fake_judge_counts_the_words_that_were_written_and_always_says_the_same() -> None:
    judge = FakeJudge(Section())
    assert [judge.score([CASE])[0].score for _ in range(2)] == [0.5, 0.5]
    assert judge.score([JudgeCase(CASE.instruction, (), ())])[0].score == 0.0
    assert judge.score([JudgeCase("Do something.", (), ())])[0].score is None


def test_a_judge_whose_score_leaves_the_range_has_no_opinion() -> None:
    class Wild(Judge[Section]):
        name = "wild"

        def _score(self, case: JudgeCase) -> Judgement:
            return Judgement(float("nan"), "?")

    assert Wild(Section()).score([CASE])[0].score is None


def test_a_judges_version_names_its_model_prompt_and_what_its_score_must_reach() -> None:
    def version(judge: Judge[Any], **changes: Any) -> str:
        return version_of(judge, JudgeConfig(**changes))

    class Stricter(EndpointJudge):
        prompt = "Be strict."

    options = JudgeEndpointOptions(url="http://here/v1", model="orm")
    judge = EndpointJudge(options)
    others = [
        version(EndpointJudge(options.model_copy(update={"model": "orm-2"}))),
        version(Stricter(options)),
        version(judge, threshold=0.6),
        version(judge, screens=1),
    ]
    assert len({version(judge), *others}) == 5
    assert version(judge) == version(EndpointJudge(options.model_copy(update={"url": "http://there/v1"}), tries=9))


def test_options_that_change_a_judge_s_answers_change_its_version_and_its_defaults_do_not() -> None:
    class Lenient(Section):
        bias: float = 0.5
        folder: str = ""

    class Biased(Judge[Lenient]):
        name, section, reached = "biased", Lenient, frozenset({"folder"})

        def _score(self, case: JudgeCase) -> Judgement:
            return Judgement(self.options.bias, "?")

    assert Biased(Lenient()).version == Biased(Lenient(bias=0.5)).version == "biased"
    assert Biased(Lenient(folder="/elsewhere")).version == "biased"
    assert Biased(Lenient(bias=0.2)).version not in ("biased", Biased(Lenient(bias=0.8)).version)


def test_a_judge_is_found_by_name_or_dotted_path_and_its_options_are_closed_when_the_config_is_read() -> None:
    assert judge_of(JudgeConfig()) is None
    assert (
        judge_of(JudgeConfig(kind=f"{FakeJudge.__module__}:FakeJudge")).name == judge_of(JudgeConfig(kind="fake")).name
    )
    for kind, options, named in (
        ("oracle", {}, r"judge\.kind"),
        ("fake", {"url": "http://here/v1"}, r"judge\.options\.url"),
        ("endpoint", {"url": "http://here/v1"}, r"judge\.options\.model"),
        ("none", {"url": "http://here/v1"}, r"judge\.options.*no judge.*judge\.kind"),
    ):
        with pytest.raises(UsageError, match=named):
            config_of({"suite": {"tasks": ["click-test"]}, "judge": {"kind": kind, "options": options}})


def test_a_refused_key_is_an_error_that_shows_no_key_even_if_the_server_repeats_it(serve: Any, monkeypatch) -> None:
    monkeypatch.setenv(KEY, "sesame")
    _, judge = serve((401, "wrong key: sesame"))
    with pytest.raises(FlywheelError, match=KEY) as caught:
        judge.score([CASE])
    assert "sesame" not in str(caught.value) and "wrong key: ***" in str(caught.value)


def test_half_a_character_in_a_reason_is_written_out(serve: Any) -> None:
    _, judge = serve((200, '{"score": 1, "reason": "\\ud83d done"}'))
    assert judge.score([CASE]) == [Judgement(1.0, "\\ud83d done")]


def test_an_endpoint_compares_two_in_both_orders_and_names_none_by_their_place(serve: Any) -> None:
    first, second = (json.dumps({"better": name, "reason": "it is done"}) for name in "AB")
    other = JudgeCase(CASE.instruction, ("Action: type(content='ada joan')",), (b"done",))
    server, judge = serve((200, first), (200, second))
    assert judge.compare(other, CASE) == Comparison(1.0, "first")
    orders = [[part["text"] for part in body["messages"][1]["content"] if "text" in part] for _, body, _ in server.seen]
    assert [one[1::2] for one in orders] == [[orders[0][1], orders[0][3]], [orders[0][3], orders[0][1]]]
    assert server.seen[0][1]["response_format"]["json_schema"]["schema"]["properties"]["better"]["enum"] == ["A", "B"]
    _, biased = serve((200, first))
    assert biased.compare(other, CASE) == Comparison(0.5, "tie")
    _, odd = serve((200, json.dumps({"better": "C", "reason": "?"})))
    assert odd.compare(other, CASE).probability is None


def test_an_endpoints_votes_need_a_temperature_which_is_sent_and_is_part_of_its_version(serve: Any) -> None:
    options = JudgeEndpointOptions(url="http://here/v1", model="orm")
    with pytest.raises(UsageError, match=r"judge\.options\.temperature"):
        judge_of(JudgeConfig(kind="endpoint", options=options.model_dump(), votes=2))
    server, cold = serve((200, GOOD), (200, GOOD.replace("0.75", "0.25")))
    warm = EndpointJudge(cold.options.model_copy(update={"temperature": 1.0}))
    assert warm.version != cold.version
    assert warm.score([CASE], votes=2)[0].score == 0.25
    assert [body["temperature"] for _, body, _ in server.seen] == [1.0, 1.0]


def test_many_cases_are_judged_at_the_same_time_and_stay_in_order(serve: Any) -> None:
    server, judge = serve((200, GOOD))
    assert judge.score([CASE] * 5) == [Judgement(0.75, "the field shows one of the words")] * 5
    assert len(server.seen) == 5


class Hesitant(FakeJudge):
    """Fails on every other comparison."""

    asked = 0

    def _prefer(self, first: JudgeCase, second: JudgeCase) -> float:
        self.asked += 1
        if self.asked % 2:
            raise JudgeFailure("an answer that names neither A nor B")
        return 0.9 if first.replies else 0.1


def test_a_comparison_is_tried_as_often_as_a_score_in_each_order() -> None:
    nothing = JudgeCase(CASE.instruction, (), ())
    assert Hesitant(Section(), tries=1).compare(CASE, nothing).probability is None
    judge = Hesitant(Section(), tries=2)
    assert judge.compare(CASE, nothing).winner == "first" and judge.asked == 4
