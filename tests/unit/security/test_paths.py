"""Names that come from data: whatever they are, nothing is read or written outside the folder they are meant for."""

import contextlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curation.converters.exchanged import RecordPlace, RecordRefused
from curation.converters.files import ImportSource, Target
from schemas.config.sections import LakeConfig
from schemas.failure import FlywheelError, LakeError, UsageError
from schemas.table import utc_now
from storage.blobs import MANIFEST, Blobs
from storage.lake import Lake
from storage.objects import LocalStore, open_store
from tasks.shared import paths
from tests.fixtures.sentences import Sentences

PIECES = st.sampled_from(["..", ".", "", "a", "%2e%2e", "..%2f", "\\..", "~", "\0", "\x1b", "C:", "x" * 300, "ü"])
NAMES = st.one_of(st.lists(PIECES, min_size=1, max_size=6).map("/".join), st.text(max_size=40))
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ALLOWED = (FlywheelError, OSError, ValueError, RecordRefused)


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@FUZZ
@given(name=NAMES)
def test_a_store_reads_and_writes_below_its_place_alone(tmp_path: Path, name: str) -> None:
    outside, place = tmp_path / "outside", tmp_path / "outside/in/place"
    place.mkdir(parents=True, exist_ok=True)
    (outside / "secret").write_bytes(b"secret")
    store = LocalStore(place)
    for step in (
        lambda: store.put(name, b"x"),
        lambda: store.put_once(name, b"x"),
        lambda: store.create(name, 1).__enter__().write(b"x"),
        lambda: store.move("a", name),
        lambda: store.delete(name),
    ):
        try:
            step()
        except ALLOWED:
            continue
    assert {one for one in tree(outside) if not one.startswith("in/place")} == {"secret", "in"}
    try:
        assert store.get(name) != b"secret" and "secret" not in store.sizes(name)
    except ALLOWED:
        return


@pytest.mark.parametrize(
    "leading",
    [
        "../../../private/secret.parquet",
        "%2e%2e/%2E%2E/..%2f{private}",
        "%252e%252e/x",
        "{private}",
        "file://{private}",
    ],
)
@pytest.mark.parametrize("latest", [True, False])
def test_a_log_that_names_a_file_outside_of_its_table_is_refused_and_nothing_is_read(
    tmp_path: Path, leading: str, latest: bool, sentence: Sentences
) -> None:
    config = LakeConfig(uri=str(tmp_path / "lake"))
    lake, private = Lake.open(config), tmp_path / "private/secret.parquet"
    gone = {"reason": "x", "policies": [], "screenshots": [], "done": True, "created_at": utc_now()}
    lake.append("forgotten", [{"trajectory_id": "ours", **gone}])
    private.parent.mkdir()
    pq.write_table(lake.read("forgotten"), private)
    log, path = tmp_path / "lake/tables/forgotten/_delta_log", leading.format(private=private)
    names = {action: {"path": path, "dataChange": True} for action in ("add", "remove")}
    names["add"] |= {"partitionValues": {}, "size": private.stat().st_size, "modificationTime": 1}
    here = len(list(log.glob("*.json")))
    for number, action in enumerate(["add"] if latest else ["add", "remove"]):
        (log / f"{here + number:020d}.json").write_text(json.dumps({action: names[action]}))
    version = None if latest else here
    pins = None if latest else {"forgotten": here}
    for one in (lake, Lake.open(config)):
        for ask in (
            lambda one=one: one.read("forgotten", version=version),
            lambda one=one: one.count("forgotten", version=version),
            lambda one=one: list(one.batches("forgotten", ["reason"], version=version)),
            lambda one=one: one.connect(["forgotten"], pins),
            *([lambda one=one: one.compact("forgotten"), one.maintain] if latest else []),
        ):
            with sentence.raises(LakeError, "tables/forgotten") as refused:
                ask()
            assert repr(path) in refused.value.problem
    if not latest:
        lake.maintain(0)
    assert private.exists()


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a\0b", ".."])
def test_what_leads_out_is_refused_by_every_kind_of_store(tmp_path: Path, name: str, sentence: Sentences) -> None:
    for store in (open_store(tmp_path / "here"), open_store("memory://here")):
        for ask in (store.get, store.exists, store.delete, store.sizes, lambda one, store=store: store.put(one, b"")):
            with sentence.raises(FlywheelError):
                ask(name)


def test_a_manifest_that_names_files_elsewhere_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    for place in (tmp_path / "lake", "memory://hostile"):
        store = open_store(place)
        store.put("policy/model.safetensors", b"x")
        store.put(f"policy/{MANIFEST}", json.dumps({"files": {"../../../stolen": "0" * 64}}).encode())
        with pytest.raises(FlywheelError, match="leads out"):
            Blobs(store).get_directory("policy", tmp_path / "cache")
    assert not (tmp_path / "cache").exists() and not (tmp_path.parent / "stolen").exists()


@pytest.mark.parametrize("version", ["../../../evil", "/tmp/evil", "a/../../../../evil"])
def test_a_policy_s_version_and_a_lake_s_id_name_no_folder_outside_the_work_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    for ask in (paths.cache_folder, paths.work_folder):
        with pytest.raises(FlywheelError, match="leads out"):
            ask(lake, version)
    monkeypatch.setattr(type(lake), "lake_id", version, raising=False)
    with pytest.raises(FlywheelError, match="leads out"):
        paths.work_folder(lake, "prepare")
    assert not (tmp_path / "evil").exists()


@FUZZ
@given(name=NAMES)
def test_a_picture_of_an_import_is_found_below_its_folder_or_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "data/images").mkdir(parents=True, exist_ok=True)
    (tmp_path / "secret.png").write_bytes(b"\x89PNG secret")
    with pytest.raises(RecordRefused) as refused:
        ImportSource(tmp_path / "data").picture(name, RecordPlace("x"), "image")
    assert "none of PNG" not in str(refused.value), "it was opened"


@FUZZ
@given(name=NAMES)
def test_a_format_from_outside_writes_below_the_export_s_folder_alone(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "deep/export"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(UsageError, OSError, ValueError):
        Target(folder).write(name, b"x")
    assert {one for one in tree(tmp_path) if not one.startswith("deep/export")} == {"deep"}


def test_a_link_in_an_import_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "data/link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(RecordRefused, match="leads out"):
        ImportSource(tmp_path / "data").picture("link.png", RecordPlace("x"), "image")
