"""The dashboard of a small lake, asked as a browser asks it, without one."""

import io
import re
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from PIL import Image
from starlette.testclient import TestClient

from apps.commands.lineage import lineage_of_policy, show_lineage
from apps.commands.policies import outcome_of
from apps.commands.status import status_of, view
from apps.dashboard.gathered import FRESH_S
from apps.desk.api import THUMBNAIL
from apps.desk.app import make_app
from apps.desk.pages import funnel_of
from apps.report.build import build_report
from apps.report.charts import FEW, training
from environments.leased import Leased
from flywheel import OpenLake
from schemas.config import config_of
from schemas.table import utc_now
from schemas.tables.promotion import Promotion
from schemas.tables.quality import QualityResult
from storage.lake import Lake
from storage.quality.docs import write_docs
from tasks.promote.promote import roll_back
from tasks.running.budget import pause_of
from tasks.running.curve import Spec
from tasks.running.run_status import RunStatus, file_of
from tasks.shared.finding import Wanted, find
from tasks.shared.paths import docs_folder, work_folder
from tasks.shared.policies import policy_row
from tasks.shared.status import success_of
from tasks.shared.tags import add_tag
from tests.unit.apps.conftest import Place, make_place

PAGES = ("/", "/running", "/trajectories", "/funnel", "/curriculum", "/lineage", "/queue", "/live", "/quality")
CHARTED = ("wheel", "curriculum", "lineage")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A lake of the test's own, to be written to."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path)


@pytest.fixture
def site(fresh: Place) -> Iterator[TestClient]:
    with TestClient(make_app(fresh.config, fresh.lake), "http://127.0.0.1:8750") as client:
        yield client


def test_every_page_answers_and_leads_to_every_other(site: TestClient) -> None:
    for path in PAGES:
        page = site.get(path)
        assert page.status_code == 200
        assert all(f'href="{other}"' in page.text for other in PAGES)


def test_a_lake_in_which_nothing_happened_has_pages_too(tmp_path: Path) -> None:
    config = config_of({"lake": {"uri": str(tmp_path / "empty"), "min_free_mb": 1}, "environments": {"fake": {}},
                        "suite": {"tasks": ["click-target"], "held_out": []}})  # fmt: skip
    with TestClient(make_app(config, Lake.open(config.lake)), "http://127.0.0.1:8750") as site:
        for path in PAGES:
            assert site.get(path).status_code == 200
        for name in CHARTED:
            assert site.get(f"/api/charts/{name}").json() == {}


def test_charts_are_given_by_page_and_an_unknown_page_is_named(site: TestClient) -> None:
    assert {name: set(site.get(f"/api/charts/{name}").json()) for name in CHARTED} == {
        "wheel": {"success", "collected", "heat", "funnel", "stages", "training"},
        "curriculum": {"weights"},
        "lineage": {"graph"},
    }
    answer = site.get("/api/charts/nothing")
    assert answer.status_code == 404 and "nothing" in answer.json()["error"]


def test_a_policy_s_page_draws_its_own_training_measure_by_measure(site: TestClient) -> None:
    assert 'data-page="policies/policy-0001"' in site.get("/policies/policy-0001").text
    spec = site.get("/api/charts/policies/policy-0001").json()["training"]
    rows = spec["data"]["values"]
    assert {row["measure"] for row in rows} == {"loss", "entropy", "margin"}
    assert {row["policy"] for row in rows} == {"policy-0001"}
    assert [row["step"] for row in rows if row["measure"] == "loss"] == [10, 20, 30]
    assert spec["facet"]["sort"] == ["loss", "entropy", "margin"]
    assert site.get("/api/charts/policies/nobody").json() == {}


def test_a_cell_of_the_heat_map_leads_to_the_trajectories_that_its_evaluation_keeps(site: TestClient) -> None:
    heat = site.get("/api/charts/wheel").json()["heat"]
    rows = heat["data"]["values"] if "data" in heat else next(iter(heat["datasets"].values()))
    by = {row["by"]: row for row in rows if row["task"].startswith("two-steps")}
    page = site.get(by["1"]["link"])
    assert page.status_code == 200 and "5 in total" in page.text  # two failures, and three of six successes
    seeds = set(re.findall(r"Click the button of seed (\d+)", page.text))
    assert seeds == {"1000001", "1000003", "1000005", "1000006", "1000007"}
    assert set(re.findall(r"policy policy-\d+", page.text)) == {"policy policy-0001"}
    assert "7 in total" in site.get(by["explorer"]["link"]).text


def test_a_trajectory_of_an_evaluation_has_pages_and_pictures_but_no_review(site: TestClient, fresh: Place) -> None:
    page = site.get("/trajectories", params={"evaluations": "true", "policy": "policy-0001", "outcome": "failure"})
    name = re.findall(r'href="/trajectory/([0-9a-f]{24})"', page.text)[0]
    shown = site.get(f"/trajectory/{name}")
    assert "held-out seed" in shown.text and "/review/" not in shown.text and "/aloud/" not in shown.text
    picture = site.get(re.findall(r"(/screenshot/[0-9a-f]{64})", shown.text)[0])
    assert picture.headers["content-type"] == "image/png"
    thumbnail = site.get(re.findall(r'src="(/thumbnail/[^"]+)"', page.text)[0])
    assert thumbnail.headers["content-type"] == "image/webp"
    assert site.get(f"/film/{name}.gif").headers["content-type"] == "image/gif"
    for refused in (f"/review/{name}", f"/aloud/{name}"):
        answer = site.get(refused)
        assert answer.status_code == 422 and "of the evaluation of policy-0001" in answer.text
    sent = {"trajectory_id": name, "revision": 0, "person": "Ada", "decision": "accept"}
    assert site.post("/api/reviews", json=sent).status_code in (403, 422)
    assert not fresh.lake.count("reviews")
    assert site.get("/trajectories", params={"evaluations": "true", "route": "sft"}).status_code == 422


def test_a_form_whose_other_fields_are_empty_filters_by_the_one_that_is_set(site: TestClient) -> None:
    form = dict.fromkeys(("evaluations", "task", "outcome", "route", "gate", "iteration", "seed", "tag", "policy"), "")
    page = site.get("/trajectories", params=form | {"outcome": "failure", "sort": "newest"})
    assert page.status_code == 200 and set(re.findall(r'class="bad">(\w+)<', page.text)) == {"failure"}
    assert site.get("/trajectories", params=form | {"seed": "0"}).text.count("<code>") == 12
    assert site.get("/trajectories", params=form | {"seed": "-1"}).status_code == 422


def test_the_quality_page_opens_the_data_docs_of_an_iteration(site: TestClient, fresh: Place) -> None:
    assert "Data Docs" not in site.get("/quality").text
    folder = docs_folder(fresh.config, fresh.lake)
    results = [one for one in fresh.lake.rows(QualityResult) if one.iteration == 1]
    write_docs({"trajectories": "<div id='section-1'>kept</div>"}, folder, results, keep=3)
    (link,) = re.findall(r'href="(/data-docs/[^"]+)"', site.get("/quality").text)
    index = site.get(link)
    assert index.status_code == 200 and "Data quality of iteration 1" in index.text
    policy = index.headers["content-security-policy"]
    assert "style-src 'unsafe-inline'" in policy and "script" not in policy and "default-src 'none'" in policy
    assert "kept" in site.get(link.replace("index", "trajectories")).text
    for missing in ("/data-docs/iteration-0007/index.html", "/data-docs/iteration-0001/no.html", "/data-docs/%2e%2e/a"):
        assert site.get(missing).status_code == 404


def test_two_runs_are_compared_on_a_page(site: TestClient, fresh: Place) -> None:
    alone = site.get("/runs")
    assert (
        alone.status_code == 200 and "disabled>Compare A and B" in alone.text and 'href="/runs"' in site.get("/").text
    )
    first, second = "1f4e6fe7-37c9-452c-84a5-e6c45d000000", "2b7c1a90-0000-4000-8000-000000000000"
    rows = fresh.lake.read("stages").to_pylist()
    fresh.lake.upsert("stages", [{**row, "run_id": first if row["iteration"] < 1 else second} for row in rows])
    add_tag(fresh.lake, [second], "longer", "Ada")
    time.sleep(FRESH_S)
    listed = site.get("/runs").text
    assert listed.count('type="radio"') == 4 and listed.index(second) < listed.index(first) and "longer" in listed
    page = site.get("/runs", params={"a": first[:8], "b": second})
    assert "+0.250" in page.text and "iteration 0 and 1" in page.text
    assert "<td>fake/click-target</td>" in re.sub("<a[^>]*>|</a>", "", page.text)
    chart = site.get(f"/api/charts/runs/{first}/{second}").json()["curves"]
    points = [(one["name"], one["at"], one["success"]) for one in chart["data"]["values"]]
    assert points == [(first[:8], 1, 0.5), (second[:8], 1, 0.75)]
    assert site.get("/runs", params={"a": first, "b": "policy-0001"}).status_code == 422


def test_two_policies_are_compared_on_a_seed_step_by_step(site: TestClient) -> None:
    asked = {"task": "fake/two-steps", "seed": 1_000_005, "a": "policy-0001"}
    page = site.get("/compare", params=asked)
    assert page.status_code == 200 and page.text.count('class="screen"') == 4
    assert "policy-0000" in page.text and "success" in page.text and "failure" in page.text
    assert "1000004</a>" in page.text  # another seed that only one of them won
    half = site.get("/compare", params=asked | {"seed": 1_000_004, "b": "policy-0000"})
    assert half.status_code == 200 and "evaluate.keep_successes" in half.text
    for wrong in ({"seed": 7}, {"a": "nobody"}, {"task": "nothing"}, {"b": "nobody"}):
        assert site.get("/compare", params=asked | wrong).status_code == 422


def test_a_policys_page_lists_the_pairs_that_decided_and_each_opens(site: TestClient, fresh: Place) -> None:
    event = Promotion(
        event="challenge:policy-0001", decision="promote", policy_version="policy-0001", against="policy-0000",
        champion="policy-0001", pairs=16, wins=4, losses=0, difference=0.25, low=0.0, high=0.5, llr=None, rule="{}",
        reason="better", created_at=utc_now(),
    )  # fmt: skip
    fresh.lake.append("promotions", [event])
    links = re.findall(r'href="(/compare[^"]+)"', site.get("/policies/policy-0001").text)
    assert len(links) == 4
    for link in links:
        assert site.get(link.replace("&amp;", "&")).status_code == 200


def members_of(page: str) -> str:
    """The fingerprint of the trajectories that match the filters of a page of the list."""
    (members,) = re.findall(r'data-members="(\d+)"', page)
    return members


def test_selected_or_all_matching_trajectories_are_decided_on_and_that_is_undone(
    site: TestClient, fresh: Place
) -> None:
    here = {"origin": "http://127.0.0.1:8750"}
    asked = {"decision": "reject", "person": "Ada", "filters": {"outcome": "success", "iteration": 1}}
    page = site.get("/trajectories?outcome=success&iteration=1").text
    assert 'data-total="12"' in page and page.count('name="pick"') == 12
    others = members_of(site.get("/trajectories?outcome=failure&iteration=1").text)
    for members in ({}, {"members": others}):
        moved = site.post("/api/decisions", json=asked | members, headers=here)
        assert moved.status_code == 422 and "12 that match now" in moved.json()["error"]
    done = site.post("/api/decisions", json=asked | {"members": members_of(page)}, headers=here)
    assert done.status_code == 201 and len(done.json()["trajectories"]) == 12
    assert find(fresh.lake, Wanted(gate="person")).total == 12
    undone = site.post(f"/api/decisions/{done.json()['batch']}/undo", json={"person": "Ada"}, headers=here)
    assert undone.status_code == 201 and find(fresh.lake, Wanted(gate="person")).total == 0
    one = done.json()["trajectories"][:1]
    chosen = site.post("/api/decisions", json={"decision": "route:ct", "person": "Ada", "ids": one}, headers=here)
    assert chosen.json()["trajectories"] == one
    for wrong in ({"ids": []}, {"ids": ["nobody"]}, {"decision": "route:nowhere"}, {"person": "?"}, {"more": 1}):
        answer = site.post(
            "/api/decisions", json={"decision": "accept", "person": "Ada", "ids": one} | wrong, headers=here
        )
        assert answer.status_code == 422 and answer.json()["error"]
    assert 'id="many"' not in site.get("/trajectories?evaluations=true").text


def test_selected_trajectories_are_exported_as_a_file(site: TestClient, fresh: Place) -> None:
    here = {"origin": "http://127.0.0.1:8750"}
    page = site.get("/trajectories?outcome=success&iteration=1").text
    assert '<option value="agentnet">' in page and '<option value="export">' in page
    ids = re.findall(r'name="pick" form="many" value="(\w+)"', page)[:2]
    done = site.post("/api/exports", json={"person": "Ada", "ids": ids, "format": "ui-tars"}, headers=here)
    assert done.status_code == 201 and done.json()["trajectories"] == ids and done.json()["redacted"]
    file = site.get(f"/exports/{done.json()['file']}")
    assert file.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(file.content)) as packed:
        assert any(name.endswith("README.md") for name in packed.namelist())
        assert "2 trajectories" in packed.read(next(one for one in packed.namelist() if "README" in one)).decode()
    assert [path.suffix for path in work_folder(fresh.lake, "exports").iterdir()] == [".zip"]
    for wrong in ({"format": "os:system"}, {"ids": ["nobody"]}, {"person": ""}):
        asked = {"person": "Ada", "ids": ids, "format": "ui-tars"} | wrong
        assert site.post("/api/exports", json=asked, headers=here).status_code == 422
    assert site.get("/exports/other.zip").status_code == 404


def test_selected_trajectories_are_counted_then_forgotten(site: TestClient, fresh: Place) -> None:
    here = {"origin": "http://127.0.0.1:8750"}
    ids = fresh.lake.read("trajectories", where={"iteration": 1})["trajectory_id"].to_pylist()[:2]
    asked = {"person": "Ada", "ids": ids, "reason": "a card number"}
    counts = site.post("/api/forget", json=asked, headers=here)
    assert counts.status_code == 201 and counts.json()["dry_run"] and counts.json()["rows"]["trajectories"] == 2
    assert counts.json()["policies"][ids[0]] == ["policy-0001"] and fresh.lake.count("trajectories") == 72
    for wrong in ({"reason": " "}, {"ids": ["nobody"]}, {"person": ""}):
        answer = site.post("/api/forget", json=asked | {"dry_run": False} | wrong, headers=here)
        assert answer.status_code == 422 and answer.json()["error"]
    done = site.post("/api/forget", json=asked | {"dry_run": False}, headers=here)
    assert done.status_code == 201 and done.json()["trajectories"] == sorted(ids)
    assert fresh.lake.count("trajectories", {"trajectory_id": ids}) == 0
    assert {row["reason"] for row in fresh.lake.read("forgotten").to_pylist()} == {"a card number (Ada)"}
    assert site.get(f"/trajectory/{ids[0]}").status_code == 404


def test_the_page_of_trajectories_finds_those_of_the_champion(site: TestClient, fresh: Place) -> None:
    names = (policy_row(fresh.lake, "champion").policy_version, "champion")
    texts = [site.get(f"/trajectories?policy={name}&evaluations=true").text for name in names]
    first, second = (re.findall(r"(\d+) in total", text) for text in texts)
    assert first == second != ["0"]


def test_trajectories_are_tagged_found_by_the_tag_and_untagged(site: TestClient) -> None:
    here, asked = {"origin": "http://127.0.0.1:8750"}, {"person": "Ada", "tag": "flaky"}
    members = members_of(site.get("/trajectories?task=two-steps&iteration=1").text)
    where = {"filters": {"task": "two-steps", "iteration": 1}, "members": members}
    done = site.post("/api/tags", json=asked | where, headers=here)
    assert done.status_code == 201 and len(done.json()["trajectories"]) == 12
    assert "12 in total" in site.get("/trajectories?tag=flaky").text
    assert site.post("/api/tags", json=asked | where, headers=here).json() == {"trajectories": []}
    removed = asked | {"ids": done.json()["trajectories"], "remove": True}
    assert len(site.post("/api/tags", json=removed, headers=here).json()["trajectories"]) == 12
    assert "0 in total" in site.get("/trajectories?tag=flaky").text
    for wrong in ({"tag": "No Tag"}, {"tag": ""}, {"ids": ["nobody"]}, {"person": "?"}):
        assert site.post("/api/tags", json=asked | where | wrong, headers=here).status_code == 422


def test_a_button_pauses_the_lake_and_another_ends_the_pause(site: TestClient, fresh: Place) -> None:
    here, ada = {"origin": "http://127.0.0.1:8750"}, {"person": "Ada"}
    assert site.get("/api/now").json()["paused"] is None
    assert site.post("/api/pause", json={"person": "?"}, headers=here).status_code == 422
    assert site.post("/api/pause", json=ada).status_code in (201, 403)
    assert site.post("/api/pause", json=ada, headers=here).status_code == 201
    pause = pause_of(fresh.lake)
    assert pause is not None and pause.by == "Ada" and site.get("/api/now").json()["paused"] == pause.text
    assert site.post("/api/resume", json=ada, headers=here).json() == {"was_paused": True}
    assert pause_of(fresh.lake) is None


def test_trajectories_are_listed_by_task_iteration_policy_and_outcome(site: TestClient) -> None:
    def total(**asked: object) -> str:
        return site.get("/trajectories", params=asked).text.partition('<p class="soft">')[2].partition(" in total")[0]  # type: ignore[arg-type]

    assert total() == "72"
    assert total(iteration=1) == "24"
    assert total(iteration=1, task="fake/two-steps") == "12"
    assert total(iteration=1, policy="explorer", outcome="success") == "4"
    assert total(outcome="environment") == "12"
    assert total(policy="nobody") == "0"
    assert total(text="no such words") == "0"
    assert total(route="sft") != total() != total(gate="verifier")
    assert site.get("/trajectories", params={"outcome": "maybe"}).status_code == 422
    assert site.get("/trajectories", params={"sort": "colour"}).status_code == 422


def test_a_list_has_each_trajectorys_last_screen_made_small(site: TestClient) -> None:
    page = site.get("/trajectories?sort=steps").text
    (address, *_) = re.findall(r'src="(/thumbnail/[^"]+)"', page)
    answer = site.get(address.replace("&amp;", "&"))
    assert answer.headers["content-type"] == "image/webp"
    with Image.open(io.BytesIO(answer.content)) as small:
        assert small.width == THUMBNAIL
    assert site.get(f"/thumbnail/{'0' * 64}").status_code == 404


def test_a_trajectory_is_a_moving_picture_and_an_unknown_one_is_named(fresh: Place, site: TestClient) -> None:
    name = find(fresh.lake, Wanted(), 1, order="steps").rows[0].row.trajectory_id
    assert f'href="/film/{name}.gif"' in site.get(f"/trajectory/{name}").text
    with Image.open(io.BytesIO(site.get(f"/film/{name}.gif").content)) as film:
        assert film.format == "GIF" and getattr(film, "n_frames", 1) > 1
    assert site.get("/film/nobody.gif").status_code == 404


@pytest.mark.parametrize("path", ["/trajectories?taks=a", "/?task=a", "/api/now?a=1", "/screenshot/0?size=3"])
def test_a_misspelt_parameter_is_refused_by_name(site: TestClient, path: str) -> None:
    answer = site.get(path)
    assert answer.status_code == 422
    assert f"`{path.partition('?')[2].partition('=')[0]}`" in answer.text.replace("&#39;", "'")


def pages_of(site: TestClient, link: str, address: str = "/trajectories") -> list[list[str]]:
    """The ids on a page of the list, and on the pages that the link `before` or `after` of each one leads to."""
    pages = list[list[str]]()
    while address:
        text = site.get(address).text
        pages.append(re.findall(r'class="id"><a href="/trajectory/(\w+)"', text))
        address = "".join(re.findall(rf'href="(/trajectories\?{link}=[^"]+)"', text)).replace("&amp;", "&")
    return pages


def test_pages_of_trajectories_follow_each_other_without_a_gap(fresh: Place) -> None:
    config = fresh.config.model_copy(update={"desk": fresh.config.desk.model_copy(update={"page_size": 10})})
    with TestClient(make_app(config, fresh.lake), "http://127.0.0.1:8750") as site:
        pages = pages_of(site, "after")
        assert [len(page) for page in pages] == [10] * 7 + [2]
        assert len({name for page in pages for name in page}) == 72
        assert pages_of(site, "before", f"/trajectories?before={pages[-1][0]}") == pages[-2::-1]
        assert site.get("/trajectories?after=nobody").status_code == 422
        assert site.get("/trajectories?page=99").status_code == 422


def test_a_page_behind_the_end_of_the_queue_leads_to_the_first(site: TestClient) -> None:
    answer = site.get("/queue?page=99&task=fake/two-steps&iteration=1", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/queue?task=fake%2Ftwo-steps&iteration=1")


def test_a_policy_says_what_it_was_made_from_and_an_unknown_one_is_named(site: TestClient) -> None:
    page = site.get("/policies/policy-0001").text
    assert 'href="/policies/policy-0000"' in page and "0123456789ab" in page
    answer = site.get("/policies/nobody")
    assert answer.status_code == 404 and "nobody" in answer.text


@pytest.mark.slow
def test_a_champion_that_a_retraining_made_is_quoted_with_its_own_success_wherever_it_is_shown(
    fresh: Place, site: TestClient
) -> None:
    lake = fresh.lake
    (row,) = lake.read("policies", where={"policy_version": "policy-0001"}).to_pylist()
    made = {"policy_version": "retrained-0000", "kind": "retrained", "created_at": utc_now()}
    lake.upsert("policies", [{**row, "status": "retired"}])
    lake.append("policies", [{**row, **made}])
    measured = lake.read("evaluations", where={"policy_version": "policy-0001"}).to_pylist()
    rows = [{**one, "policy_version": "retrained-0000", "success": one["seed"] % 8 < 7} for one in measured]
    lake.append("evaluations", rows)
    reason = "0.125 better (0.010 to 0.240)"
    lake.append("promotions", [Promotion(
        event="challenge:retrained-0000", decision="promote", policy_version="retrained-0000", against="policy-0001",
        champion="retrained-0000", pairs=16, wins=2, losses=0, difference=0.125, low=0.01, high=0.24, llr=3.0,
        rule="{}", reason=reason, created_at=utc_now(),
    )])  # fmt: skip

    at = success_of(lake, "retrained-0000")
    assert at and at.held_out and (at.success, at.n, at.held_out.success, at.held_out.n) == (0.875, 16, 0.875, 8)
    shown = f"{at.ci[0]:.3f} to {at.ci[1]:.3f}"
    time.sleep(FRESH_S)
    for page in (site.get("/").text, build_report(fresh.config).read_text()):
        head = page.partition("its success")[0][-60:] + page.partition("its success")[2][:120]
        assert "0.875" in head and shown in head
    page = site.get("/policies/retrained-0000").text
    assert at.text in page and reason in page and "promoted" in page
    assert f"the champion's success {at.text}" in str(view(lake).renderables[1])
    assert status_of(lake)["champion_success"] == at
    outcome = outcome_of(lake, "retrained-0000")
    assert outcome.line == f"retrained-0000: champion: {reason}; success {at.text}"
    assert outcome.as_dict["success"] == at


def test_a_policy_s_page_tells_what_was_read_from_what_was_imitated_as_the_funnel_does(
    fresh: Place, site: TestClient
) -> None:
    imitated = sum(one.counts["trained"] for one in funnel_of(fresh.lake))
    page = site.get("/policies/policy-0001").text
    said = "Training read 40 trajectories, of which 24 were imitated (24 of route sft, 16 of route ct); reviewers"
    assert imitated == 24 and said in page
    found = lineage_of_policy(fresh.lake, policy_row(fresh.lake, "policy-0001"))
    assert (found.imitated, found.as_dict["routes"]) == (24, {"sft": 24, "ct": 16})
    perceived = replace(found, row=found.row.model_copy(update={"method": "ct"}))
    assert perceived.imitated is None
    assert "Training read 0 trajectories; reviewers" in site.get("/policies/policy-initial").text


def test_what_a_run_does_is_told_until_it_is_not_heard_of(fresh: Place, site: TestClient) -> None:
    def says(**fields: object) -> None:
        fresh.lake.blobs.store.put(file_of("one"), RunStatus(**fields).model_dump_json().encode())  # type: ignore[arg-type]

    assert site.get("/api/now").json()["now"] is None
    leased = Leased(environment="fake", task_id="fake/two-steps", seed=7, since=time.time())
    says(heard=time.time(), iteration=2, stage="collect", since=time.time() - 10, done=5, total=20, sandboxes=(leased,))
    now = site.get("/api/now").json()["now"]
    assert (now["where"], now["stage"], round(now["left_s"])) == ("2", "collect", 30)
    assert now["sandboxes"][0]["task_id"] == "fake/two-steps"
    says(heard=time.time() - 3600, iteration=2, stage="collect")
    assert site.get("/api/now").json()["now"] is None
    fresh.lake.blobs.store.put(file_of("one"), b"{half a mom")
    assert site.get("/api/now").json()["now"] is None


def test_runs_at_once_are_told_side_by_side_and_the_wheel_first(fresh: Place, site: TestClient) -> None:
    for name, iteration, flow in (("a", None, "retrain"), ("b", 3, "flywheel"), ("c", None, "evaluate")):
        now = RunStatus(heard=time.time(), run_id=name, flow=flow, iteration=iteration, stage="train")
        fresh.lake.blobs.store.put(file_of(name), now.model_dump_json().encode())
    told = site.get("/api/now").json()
    assert [one["flow"] for one in told["runs"]] == ["flywheel", "retrain", "evaluate"]
    assert told["now"] == told["runs"][0]


def test_a_page_knows_of_a_change_of_the_lake(fresh: Place, site: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.dashboard.gathered.FRESH_S", 0.0)
    before = site.get("/api/now").json()["revision"]
    assert site.get("/api/now").json()["revision"] == before
    fresh.lake.delete("curriculum", "iteration = 2")
    assert site.get("/api/now").json()["revision"] != before
    assert "Iteration 1" in site.get("/curriculum").text


def test_names_and_words_of_pages_are_shown_as_text(fresh: Place) -> None:
    bad = '"><script>alert(1)</script>'
    fresh.lake.append("policies", [{**fresh.lake.read("policies").to_pylist()[0], "policy_version": bad}])
    with TestClient(make_app(fresh.config, fresh.lake), "http://127.0.0.1:8750") as site:
        for path in ("/lineage", "/trajectories", "/trajectories?task=%22%3E%3Cscript%3Ealert(1)", "/"):
            assert "<script>alert" not in site.get(path).text


def test_the_quality_page_shows_what_failed_of_one_iteration_or_of_the_newest(site: TestClient) -> None:
    page = site.get("/quality")
    assert page.status_code == 200 and "a trajectory of many minutes points at a stuck sandbox" in page.text
    assert 'href="/quality?iteration=1"' in page.text
    one = site.get("/quality?iteration=1")
    assert one.status_code == 200 and "<h2>Held</h2>" in one.text
    assert site.get("/quality?iteration=77").status_code == 404


@pytest.mark.slow
def test_a_policy_that_was_rolled_back_is_shown_as_that_with_the_reason_wherever_it_is_shown(
    fresh: Place, site: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, reason = fresh.lake, "it clicks twice"
    assert [one["rolled_back"] for one in status_of(lake)["iterations"]] == [None, None]
    roll_back(lake, None, reason)
    time.sleep(FRESH_S)
    for path in ("/", "/lineage", "/policies/policy-0001"):
        assert "rolled back" in site.get(path).text
    assert '"rolled back"' in site.get("/api/charts/lineage").text
    assert ">rolled back</td>" in build_report(fresh.config).read_text()

    success = site.get("/policies/policy-0001").text.partition("<h2>Success</h2>")[2].partition("<h2>Made from</h2>")[0]
    assert "rolled back" in success and reason in success and 'href="/policies/policy-0000"' in success
    assert reason not in site.get("/policies/policy-0000").text

    shown: Any = view(lake).renderables
    assert "rolled back" in [str(cell) for column in shown[0].columns for cell in column.cells]
    assert f"policy-0001 rolled back: {reason}" in str(shown[1])
    first, second = status_of(lake)["iterations"]
    assert (first["rolled_back"], second["rolled_back"], second["promoted"]) == (None, reason, True)

    found = lineage_of_policy(lake, policy_row(lake, "policy-0001"))
    assert [one["rolled_back"] for one in found.as_dict["chain"]] == [reason, None, None]
    show_lineage(found)
    said = capsys.readouterr().out
    assert "sft, rolled back, code" in said and f"rolled back     {reason}" in said
    (row,) = lake.read("policies", where={"policy_version": "policy-0001"}).to_pylist()
    lake.append("policies", [{**row, "policy_version": "after", "parent": "policy-0001", "created_at": utc_now()}])
    show_lineage(lineage_of_policy(lake, policy_row(lake, "after")))
    said = capsys.readouterr().out
    assert "from policy-0001  iteration 1, sft, rolled back, code" in said and reason not in said


def test_a_training_of_one_step_is_drawn_as_points_and_a_long_one_as_a_line(fresh: Place) -> None:
    (row,) = fresh.lake.read(
        "training_steps", where={"policy_version": "policy-0001", "step": 10, "iteration": 1}
    ).to_pylist()
    steps = {"short": [1], "long": range(FEW + 1)}
    rows = [{**row, "policy_version": name, "step": step} for name, given in steps.items() for step in given]
    fresh.lake.append("training_steps", rows)
    lake = OpenLake(fresh.lake)
    assert drawn(training(lake.training(["short"]))) == 3
    assert drawn(training(lake.training(["long"]))) == 0
    assert drawn(training(lake.training(["long", "short"]))) == 3


def drawn(spec: Spec | None) -> int:
    """How many points a chart shows that are no part of a line."""
    assert spec
    svg = vl_convert.vegalite_to_svg(spec)
    marks = [mark for mark in re.findall(r"<path [^>]*>", svg) if 'aria-roledescription="circle"' in mark]
    return sum('opacity="0"' not in mark for mark in marks)
