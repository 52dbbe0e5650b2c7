"""The command line as a program sees it: output, exit codes, and errors in one line."""

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from apps.commands import run, verbs
from apps.process import DEFAULTS, settle
from models.random_vlm import build_random
from schemas.config import load_config
from schemas.failure import GateRefused
from schemas.tables.stage import STAGES
from storage.lake import Lake
from tasks.running.run_status import RunStatus
from tasks.shared.lease import iteration_lock
from tasks.shared.policies import policy_row
from tests.command import Call
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import make_place

NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"
"""A safetensors file that names no weight."""


def test_status_json_has_exactly_the_fixed_keys_and_lists_finished_iterations(flywheel: Call, place: Any) -> None:
    code, out, err = flywheel("status", "--json", "--config", place.file)
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert set(found) == {
        "lake", "champion", "champion_success", "iterations", "current", "people", "paused", "decisions", "overridden",
        "failing", "imported", "runs", "proposals", "candidates", "general",
    }  # fmt: skip
    assert found["imported"] == 0
    assert found["current"] == {"running": False, "iteration": 2, "stage": "collect"}
    assert (found["champion_success"]["success"], found["champion_success"]["n"]) == (0.75, 16)
    assert found["champion_success"]["held_out"] == found["iterations"][1]["held_out"]
    assert (found["people"], found["paused"]) == ([], None)
    assert [(one["policy"], one["decision"]) for one in found["decisions"]] == [
        ("policy-0000", "retired"), ("policy-0001", "champion"),
    ]  # fmt: skip
    assert found["champion"] == "policy-0001"
    assert [one["iteration"] for one in found["iterations"]] == [0, 1]
    first = found["iterations"][0]
    assert set(first) == {
        "iteration", "policy", "success", "ci", "explorer", "trajectories", "promoted", "wall_s", "stages_s",
        "verified", "orchestration_s", "verified_fixed_mix", "held_out", "synthesized", "rolled_back",
        "explorer_version",
    }  # fmt: skip
    assert first["orchestration_s"] == pytest.approx(len(STAGES) * 0.25)
    assert first["policy"] == "policy-0000"
    assert first["success"] == pytest.approx(0.5)
    low, high = first["ci"]
    assert low < 0.5 < high
    assert first["explorer"] == pytest.approx(0.25)
    assert first["trajectories"] == 24
    assert first["promoted"] is True
    assert first["stages_s"]["train"] == pytest.approx(2.0)
    assert first["verified"]["rate"] == pytest.approx(8 / 10) and first["verified"]["n"] == 10
    low, high = first["verified"]["ci"]
    assert low < 0.8 < high


def test_status_json_has_the_progress_of_a_run(flywheel: Call, place: Any) -> None:
    store, now = place.lake.blobs.store, time.time()
    live = RunStatus(
        run_id="r", flow="flywheel", iteration=2, stage="train", since=now - 60, heard=now, done=120, total=520
    )
    store.put("live/r.json", live.model_dump_json().encode())
    try:
        code, out, _ = flywheel("status", "--json", "--config", place.file)
    finally:
        store.delete("live/r.json")
    current = json.loads(out)["current"]
    assert code == 0
    assert [current[name] for name in ("running", "iteration", "flow", "stage", "done", "total")] == [
        True, 2, "flywheel", "train", 120, 520,
    ]  # fmt: skip
    assert current["left_s"] == pytest.approx(200, rel=0.1) and current["stage_s"] == pytest.approx(60, rel=0.1)


def test_status_for_people_shows_the_iteration_under_way(flywheel: Call, place: Any) -> None:
    code, out, _ = flywheel("status", "--config", place.file)
    assert code == 0
    assert "running" in out and "champion policy-0001" in out
    for said in ("P(V=1 | iteration)", "fixed mix of 2 tasks", "never trained on"):
        assert re.search(rf"{re.escape(said)} \S+ 0\.\d{{3}} \(0\.\d\d to [01]\.\d\d\)", out), said
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("lake "))


def test_an_unknown_task_is_named_before_anything_is_spent(flywheel: Call, place: Any) -> None:
    for words in (("run",), ("run", "--dry-run"), ("evaluate", "--json")):
        code, out, err = flywheel(*words, "--config", place.file, 'suite.tasks=["click-targt"]')
        assert (code, out) == (2, "")
        assert "click-targt" in err and "click-target" in err
        assert err.count("\n") == 1 and "Traceback" not in err


def test_an_unknown_key_is_named_with_the_nearest_one(flywheel: Call, place: Any) -> None:
    code, out, err = flywheel("status", "--json", "--config", place.file, "train.stepz=3")
    assert (code, out) == (2, "")
    assert "train.stepz" in err and "`steps`" in err


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("evaluate", "--seeds", "0:3"), "--seeds 0:3: evaluation seeds start at 1,000,000"),
        (("merge", "policy-0000"), "at least two different policies"),
        (("merge", "policy-0000", "policy-0000"), "at least two different policies"),
        (("merge", "policy-0000", "policy-0001", "--weights", "0.5,0.6"), "add up to 1"),
        (("diff", "policy-0000"), "compares two versions, not 1"),
        (("diff", "policy-0000", "policy-9"), "`policy-9` is neither a policy"),
        (("forget",), "was given no trajectory"),
        (("forget", "nobody", "--reason", "asked"), "no trajectory `nobody`"),
        (("rollback", "nobody"), "no policy `nobody`"),
        (("rollback", "policy-0000", "policy-0001"), "takes one version"),
        (("run", "policy.device=cuda"), "`policy.device` is set, and nothing reads it"),
        (("run", "--dry-run", "policy.device=cuda"), "`policy.device` is set, and nothing reads it"),
    ],
)
def test_what_cannot_be_is_refused_before_a_server_starts(
    flywheel: Call, place: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], problem: str
) -> None:
    for module in ("apps.commands.policies.call", "apps.commands.run.call"):
        monkeypatch.setattr(module, lambda *_: pytest.fail("a server would have been started"))
    code, out, err = flywheel(command[0], *command[1:], "--config", place.file)
    assert (code, out) == (2, "") and problem in err and err.count("\n") == 1


@pytest.mark.parametrize("verb", ["run", "collect"])
def test_a_lake_that_another_run_holds_is_refused_before_the_checks_of_the_config(
    flywheel: Call, place: Any, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    for name in ("require", "call"):
        monkeypatch.setattr(f"apps.commands.run.{name}", lambda *_: pytest.fail("the lake is held"))
    with iteration_lock(Lake.open(load_config(place.file, [], {}).lake)):
        code, out, err = flywheel(verb, "--config", place.file)
    assert (code, out) == (2, "") and str(os.getpid()) in err and err.count("\n") == 1


def test_a_data_set_is_refused_before_a_server_starts(
    flywheel: Call, place: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("apps.calling.call", lambda *_: pytest.fail("a server would have been started"))
    (tmp_path / "rows.jsonl").write_text('{"task_id": "a"}\n')
    code, out, err = flywheel("data", "import", tmp_path, "--format", "agentnet", "--config", place.file)
    assert (code, out) == (2, "") and "rows.jsonl" in err and "traj" in err


def test_export_offers_no_policy_that_it_cannot_export(flywheel: Call) -> None:
    assert "explorer" not in flywheel("export", "--help")[1]


def test_a_word_that_is_no_key_value_pair_is_a_usage_error(flywheel: Call, place: Any) -> None:
    code, _, err = flywheel("status", "--config", place.file, "train.steps")
    assert code == 2 and "key=value" in err


def test_a_missing_config_file_is_named(flywheel: Call, tmp_path: Path) -> None:
    code, _, err = flywheel("status", "--config", tmp_path / "none.toml")
    assert code == 2 and "none.toml" in err


def test_an_unknown_option_is_a_usage_error(flywheel: Call) -> None:
    assert flywheel("status", "--no-such-option")[0] == 2


def test_a_lake_that_is_not_there_is_an_error_with_its_hint(
    flywheel: Call, place: Any, tmp_path: Path, sentence: Sentences
) -> None:
    code, out, err = flywheel("status", "--json", "--config", place.file, f"lake.uri={tmp_path / 'empty'}")
    assert (code, out) == (1, "")
    assert "flywheel run" in err
    sentence(err)


def test_a_folder_of_somebody_else_is_refused_by_run(flywheel: Call, place: Any, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    code, _, err = flywheel("run", "--config", place.file, f"lake.uri={tmp_path}")
    assert code == 1 and "not a lake" in err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_full_disk_is_refused_by_run(flywheel: Call, place: Any) -> None:
    code, _, err = flywheel("run", "--config", place.file, "lake.min_free_mb=999999999")
    assert code == 1 and "lake.min_free_mb" in err


def test_a_missing_browser_is_refused_by_run(flywheel: Call, place: Any, tmp_path: Path) -> None:
    words = ("environments.miniwob={}", 'suite.tasks=["click-test"]', "suite.held_out=[]")
    code, _, err = flywheel("run", "--config", place.file, *words, f"environments.miniwob.browser={tmp_path / 'none'}")
    assert code == 1 and "environments.miniwob.browser" in err


def test_a_refused_gate_has_its_own_exit_code(flywheel: Call, monkeypatch: pytest.MonkeyPatch, place: Any) -> None:
    def refuse(*_: Any) -> None:
        raise GateRefused("The gate refuses iteration 3.", "Mend the rows.")

    monkeypatch.setattr(verbs, "resolve", refuse)
    assert flywheel("status", "--config", place.file) == (
        3,
        "",
        "flywheel: The gate refuses iteration 3. Mend the rows.\n",
    )


def test_an_unexpected_exception_keeps_its_traceback_once_and_says_what_is_kept(
    flywheel: Call, monkeypatch: pytest.MonkeyPatch, place: Any
) -> None:
    def break_down(*_: Any) -> None:
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr(verbs, "resolve", break_down)
    code, out, err = flywheel("status", "--config", place.file)
    assert (code, out) == (1, "") and err.count("Traceback") == 1
    *_, error, last = err.splitlines()
    assert error == "RuntimeError: nobody expected this" and last.startswith("flywheel: internal error")
    monkeypatch.setenv("FLYWHEEL_LOG", "json")
    (line,) = flywheel("status", "--config", place.file)[2].splitlines()
    assert "RuntimeError: nobody expected this" in json.loads(line)["traceback"]


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    flywheel: Call, place: Any, tmp_path: Path, sentence: Sentences
) -> None:
    code, out, _ = flywheel(
        "run", "--dry-run", "--iterations", 3, "--config", place.file, f"lake.uri={tmp_path / 'new'}"
    )
    assert code == 0
    sentence.lines(out, "click-target", "two-steps")
    sentence.lines(out, "480")
    assert "0 iterations finished" in out
    assert not (tmp_path / "new").exists()


def test_a_dry_run_refuses_a_base_that_a_server_would_read_otherwise_than_the_run_does(
    flywheel: Call, place: Any, tmp_path: Path, sentence: Sentences
) -> None:
    build_random("qwen3_vl", ["Click here."] * 8, 0, tmp_path / "base")
    shutil.copy(tmp_path / "base" / "model.safetensors", tmp_path / "base" / "model_ema.safetensors")
    (tmp_path / "base" / "model.safetensors.index.json").unlink(missing_ok=True)
    given = (
        "run",
        "--dry-run",
        "--config",
        place.file,
        f"lake.uri={tmp_path / 'new'}",
        f"policy.base={tmp_path / 'base'}",
    )
    code, _, err = flywheel(*given, "policy.server.url=http://127.0.0.1:9/v1")
    assert code != 0
    sentence.lines(err, "model_ema.safetensors")


def test_a_dry_run_of_a_retraining_says_from_what_how_long_and_writes_nothing(
    flywheel: Call, place: Any, sentence: Sentences
) -> None:
    before = place.lake.versions()
    code, out, _ = flywheel("retrain", "--dry-run", "--json", "--config", place.file)
    plan = json.loads(out)
    assert code == 0 and plan["parent"] == "policy-0001" and plan["new_steps"] > 0 and plan["seconds"] > 0
    code, out, _ = flywheel("retrain", "--dry-run", "--like", "policy-0001", "--config", place.file)
    assert code == 0
    sentence.lines(out, "policy-0000", "policy-0001")
    code, _, err = flywheel("retrain", "--dry-run", "--like", "policy-initial", "--config", place.file)
    assert code == 2
    sentence(err, "policy-initial")
    assert place.lake.versions() == before


def test_a_dry_run_refuses_parts_that_a_run_would_refuse(flywheel: Call, place: Any) -> None:
    for part in ("collect.explorer=nope", "policy.family=pixels", "policy.base=/nope", "policy.hidden=96",
                 "collect.relay_share=0.9", 'suite.tasks=["note"]'):  # fmt: skip
        code, _, err = flywheel("run", "--dry-run", "--config", place.file, part)
        assert code in (1, 2) and ("judge.kind" if "note" in part else part.partition("=")[0].rpartition(".")[2]) in err


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["lake.uri={folder}/letter"], "`lake.uri` is {folder}/letter, and {folder}/letter is a file."),
        (["lake.uri={folder}/new", "lake.min_free_mb=999999999"], "`lake.min_free_mb` is 999999999."),
        (
            [
                "lake.uri={folder}/new",
                'environments={"fake":{},"html":{"folder":"{folder}","tasks":{"form":{"instruction":"Send it."}}}}',
            ],
            "`environments.html.tasks.form`: there is no {folder}/form.html.",
        ),
    ],
)
def test_a_dry_run_ends_as_the_run_where_that_has_no_place_or_no_page(
    flywheel: Call, place: Any, tmp_path: Path, overrides: list[str], said: str
) -> None:
    (tmp_path / "letter").write_text("mine")
    words = [one.replace("{folder}", str(tmp_path)) for one in overrides]
    for verb in (["run", "--dry-run"], ["run"]):
        code, _, err = flywheel(*verb, "--config", place.file, *words)
        assert code in (1, 2) and said.replace("{folder}", str(tmp_path)) in err, err


def test_a_run_prints_what_it_resumes_as_soon_as_its_checks_pass(
    place: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "require", lambda config: None)
    with run._begun(place.config):  # pyright: ignore[reportPrivateUsage]
        printed = capsys.readouterr().err
    assert printed == f"Resuming iteration 2 of the lake at {place.lake.uri} after curriculum.\n"


def test_another_base_than_the_lakes_is_named_before_the_shape_of_the_small_policy(
    flywheel: Call, place: Any, tmp_path: Path, sentence: Sentences
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    (tmp_path / "model.safetensors").write_bytes(NO_WEIGHTS)
    words = (f"policy.base={tmp_path}", "policy.hidden=96")
    for verb in (["run", "--dry-run"], ["run"]):
        _, _, err = flywheel(*verb, "--config", place.file, *words)
        assert f"`policy.base={tmp_path}`" in err and "made with policy.base=tiny" in err, err
        assert "flywheel adopt" in err
        sentence(err, "lake.uri")


def test_a_dry_run_says_where_the_lake_stands(flywheel: Call, place: Any, sentence: Sentences) -> None:
    _, out, _ = flywheel("run", "--dry-run", "--config", place.file)
    sentence.lines(out, "curriculum")


def test_a_dry_run_takes_its_time_from_the_lake_and_counts_only_what_is_left(
    flywheel: Call, place: Any, sentence: Sentences
) -> None:
    _, out, _ = flywheel("run", "--dry-run", "--json", "--iterations", 2, "--config", place.file)
    found = json.loads(out)
    assert found["unfinished"] == {"iteration": 2, "after": "curriculum", "trajectories": 24}
    assert (found["trajectories_each"], found["trajectories"]) == (160, 2 * 160 - 24)
    assert (found["evaluation_each"], found["start"], found["held_out"]) == (2 * 15 + 5, 0, ["enter-text"])
    each = (len(STAGES) - 1) * 2.0 + 2.0 * 160 / 24 + len(STAGES) * 0.25  # collecting goes by its trajectories
    assert found["seconds"] == pytest.approx(2 * each - 2.0)
    _, out, _ = flywheel("run", "--dry-run", "--iterations", 2, "--config", place.file)
    sentence.lines(out, f"{2 * each - 2.0:.0f}")


def test_a_dry_run_counts_a_checkpoint_by_the_model_that_it_begins_with(
    flywheel: Call, place: Any, tmp_path: Path
) -> None:
    build_random("qwen2_5_vl", ["Click here."] * 8, 0, model := tmp_path / "model")
    size = sum(file.stat().st_size for file in model.iterdir()) / 1e6
    words = ("--config", place.file, f"lake.uri={tmp_path / 'new'}", f"policy.base={model}", "--iterations", 1)
    code, out, err = flywheel("run", "--dry-run", "--json", *words)
    assert code == 0, err
    assert json.loads(out)["megabytes"] == pytest.approx(160 * 0.015 + 3 * size, rel=0.05)


def test_a_rollback_without_a_name_goes_to_no_untrained_policy_and_not_twice_for_one_fault(
    flywheel: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)

    def back(*words: str) -> tuple[int, str]:
        code, _, err = flywheel("rollback", *words, "--config", place.file)
        return code, err

    assert back("--reason", "it clicks twice") == (0, "")
    code, err = back()
    assert code == 2
    sentence(err, "policy-0001", SECONDS=re.compile(r"\d+(?= s ago)"))
    monkeypatch.setattr("apps.commands.policies.JUST_NOW_S", 0.0)
    code, err = back()
    assert code == 2
    sentence(err, "policy-initial")
    assert policy_row(place.lake, "policy-0000").status == "champion"
    assert back("policy-initial") == (0, "")


@pytest.mark.parametrize("seeds", ["7", "9:3", "a:b", "5:5"])
def test_seeds_that_are_no_range_are_a_usage_error(flywheel: Call, place: Any, seeds: str) -> None:
    code, _, err = flywheel("evaluate", "--config", place.file, "--seeds", seeds)
    assert code == 2 and "--seeds" in err


def test_an_unknown_policy_is_named_with_those_there_are(flywheel: Call, place: Any) -> None:
    for verb in (("evaluate", "--policy", "policy-9"), ("retrain", "--like", "policy-9"), ("lineage", "policy-9")):
        code, _, err = flywheel(*verb, "--config", place.file)
        assert code == 2 and "policy-9" in err and "policy-0001" in err


@pytest.mark.parametrize(
    "override", ["train.steps=3", "policy.thoughts=false", "filter.corrections=verified", "seed=3"]
)
def test_what_a_repeated_training_would_not_read_is_refused_by_its_key(
    flywheel: Call, place: Any, override: str
) -> None:
    code, _, err = flywheel("retrain", "--like", "policy-0001", override, "--config", place.file)
    assert code == 2 and f"`{override.partition('=')[0]}`: with `--like`" in err and err.count("\n") == 1, err
    assert "Leave `--like` away" in err


@pytest.mark.parametrize("override", ["policy.server.in_flight=drop", "policy.batch=4", "evaluate.seeds=2"])
def test_how_a_repeated_training_is_measured_may_be_said(flywheel: Call, place: Any, override: str) -> None:
    _, _, err = flywheel("retrain", "--like", "policy-9", override, "--config", place.file)
    assert "policy-9" in err and "--like" not in err, err


def test_the_environment_is_settled_without_touching_what_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (*DEFAULTS, "PREFECT_HOME"):
        monkeypatch.setenv(name, "kept")
        monkeypatch.delenv(name)
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path))
    settle()
    import os

    assert os.environ["DO_NOT_TRACK"] == "0"
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"
    assert os.environ["PREFECT_HOME"] == str(tmp_path / "prefect")


def test_the_curriculum_explains_a_task_with_its_numbers_in_every_iteration(flywheel: Call, place: Any) -> None:
    for name in ("two-steps", "fake/two-steps"):
        code, out, err = flywheel("curriculum", "explain", name, "--json", "--config", place.file)
        found = json.loads(out)
        assert (code, err) == (0, "")
        assert found["task"] == "fake/two-steps"
        assert [row["iteration"] for row in found["iterations"]] == [0, 1, 2]
        first = found["iterations"][0]
        assert (first["weight"], first["pool"], first["policy"]) == (0.5, "learnable", 6)
        assert first["reason"] == "learnable: half of two-steps succeeds"
    _, out, _ = flywheel("curriculum", "explain", "two-steps", "--config", place.file)
    assert "50.0 %" in out and "half of two-steps" in out


def test_a_task_that_the_curriculum_never_held_is_named_with_the_nearest(flywheel: Call, place: Any) -> None:
    code, out, err = flywheel("curriculum", "explain", "two-stops", "--json", "--config", place.file)
    assert (code, out) == (2, "")
    assert "two-stops" in err and "two-steps" in err


def test_help_imports_nothing_heavy() -> None:
    import subprocess

    script = (
        "import sys; import apps.cli; print([m for m in ('torch', 'prefect', 'duckdb', 'altair') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (("--log-json", "desk", "--port", "99999"), "'--port'", "desk --help"),
        (("--log-json", "data", "import"), "'PATH'", "data import --help"),
        (("--log-json", "nonsense"), "'nonsense'", "flywheel --help"),
        (("--nonsense", "--log-json"), "--nonsense", "flywheel --help"),
        (("status", "--watch=no", "--log-json"), "--watch", "flywheel --help"),
        (("--log-json",), "command", "flywheel --help"),
        (("--log-json", "parse"), "`flywheel parse`", "TEXT"),
        (("--log-json", "run", "train.stepz=1"), "train.stepz", "steps"),
        (("--log-json", "adopt", "nowhere"), "nowhere", "directory"),
    ],
)
def test_wrong_usage_is_a_line_of_json_where_logs_are(
    flywheel: Call, place: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], message: str, hint: str
) -> None:
    monkeypatch.setenv("FLYWHEEL_LOG", "")
    monkeypatch.setattr("common.log.PREFECT", {})
    settled = ("--config", place.file) if command[-1] == "nowhere" else ()
    code, out, err = flywheel(*command, *settled)
    (line,) = map(json.loads, err.splitlines())
    assert (code, out) == (2, "")
    assert (line["level"], line["error"], line["exit_code"]) == ("error", "UsageError", 2)
    assert message in line["message"] and hint in f"{line['message']} {line['hint']}"


def test_a_command_that_succeeds_ends_with_0_where_logs_are_json_and_notes_are_lines(
    flywheel: Call, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_LOG", "")
    monkeypatch.setattr("common.log.PREFECT", {})
    code, out, err = flywheel(
        "--log-json", "parse", "--family", "ui-tars-1.5", "--screen", "100x100", "--json", "wait()"
    )
    assert code == 0 and json.loads(out) and "pixels are those of" in json.loads(err)["message"]
    export = ("data", "export", "--format", "agentnet", "--to", tmp_path / "out", "--config", place.file)
    code, _, err = flywheel("--log-json", *export)
    assert code == 0 and any("--route sft" in json.loads(line)["message"] for line in err.splitlines())
    assert flywheel("--log-json", "--version")[0] == flywheel("--log-json", "desk", "--help")[0] == 0
