"""cua-lite's validators and loaders accept our rows, and refuse flawed ones.

`tests/golden/cua-lite.json` has their verdicts on the rows of `cua_lite_rows`, from cua-lite @2602509, run from a
shortened copy. Where FLYWHEEL_CUA_LITE names a checkout of cua-lite, its code judges the rows again, judges random
exports, and writes rows that are imported. FLYWHEEL_CUA_LITE_PYTHON names a Python with its packages, if this one lacks
them. FLYWHEEL_GOLDEN=write stores the verdicts.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from curation.converters.cua_lite.form import CuaLite, CuaLiteHub
from curation.converters.exchanged import Exchanged
from schemas.action import CallUser, Click, Finished, Hotkey, Type
from tests.tiers import lacks
from tests.unit.curation.converters.cua_lite_rows import FLAWS, rows
from tests.unit.curation.converters.records import RECORDS, picture, taken, written
from tests.unit.curation.converters.test_cua_lite import flaws

CHECKOUT = os.environ.get("FLYWHEEL_CUA_LITE", "")
PYTHON = os.environ.get("FLYWHEEL_CUA_LITE_PYTHON", sys.executable)
GOLDEN = Path(__file__).parents[3] / "golden" / "cua-lite.json"
THEIRS = pytest.mark.skipif(
    not CHECKOUT,
    reason=lacks("no cua-lite in FLYWHEEL_CUA_LITE", "git clone https://github.com/cua-lite/cua-lite"),
)
UNCHECKED = ("point of three numbers", "point without a coordinate")
"""Flaws that cua-lite's validators do not look for; our import refuses them."""

JUDGE = """
import json, sys
from lite.core.samples import LiteSample
from lite.data.utils.rows import validate_canonical_rows
found = {}
for name, row in json.load(sys.stdin).items():
    try:
        validate_canonical_rows([row], name)
        LiteSample.from_dict(row)
        found[name] = ""
    except Exception as error:
        found[name] = str(error)
print(json.dumps(found))
"""
LOAD = """
import json, sys
from pathlib import Path
from lite.core.samples import LiteSample
from lite.data import staging
from lite.data.hf.fold import FOLD_COL, unfold_rows
from lite.data.utils.rows import validate_canonical_rows
root, count = Path(sys.argv[1]), 0
for path in sorted(root.rglob("*.parquet")):
    part = path.parent if path.name.startswith("shard-") else path
    assert staging.split_of_partition_file(part) in ("train", "validation")
    for row in staging.iter_parquet_rows(path):
        for one in unfold_rows([row]) if FOLD_COL in row else [row]:
            one = {**one, "messages": staging.coerce_messages(one["messages"])}
            one["metadata"] = staging.coerce_meta(one["metadata"])
            validate_canonical_rows([one], str(path))
            LiteSample.from_dict(one)
            for name in staging.coerce_image_paths(one["images"]) if isinstance(one["images"][0], str) else ():
                assert (root / name).is_file(), name
            count += 1
print(json.dumps(count))
"""
WRITE = """
import json, sys
from pathlib import Path
from lite.core.metadata import LiteCUAMetadata
from lite.core.tools.calls import make_tool_call, stamp_messages_tool_call_ids
from lite.data import staging
from lite.data.hf.fold import fold_rows
from lite.data.utils.messages import (
    extra_tool_schemas_for_messages, finalize_use_messages, pop_terminal_terminate, structural_final_message,
    terminate_outcome_others,
)
root, name = Path(sys.argv[1]), "Theirs"
out = staging.dataset_root(name, root=root)
store = staging.ImageStore(out / "images", rel_prefix=staging.image_rel_prefix(name))
shots = [store.put(bytes.fromhex(one), ext="png") for one in json.load(sys.stdin)]
def image(index): return {"type": "image", "index": index}
def user(index, text): return {"role": "user", "content": [image(index), {"type": "text", "text": text}]}
def acts(*actions): return {"role": "assistant", "tool_calls": [make_tool_call("computer", {"actions": list(actions)})]}
def meta(kind, chat, **others):
    return LiteCUAMetadata(
        dims=("desktop", kind), extra_tool_schemas=extra_tool_schemas_for_messages(chat), others={"id": kind, **others}
    ).to_dict()
def use(ending, **others):
    chat = [
        user(0, "Rename the file."),
        acts({"action": "click", "coordinate": [500, 250]}),
        {"role": "user", "content": [image(1)]},
        acts({"action": "key", "keys": ["ctrl", "a"]}, {"action": "type", "text": "b", "press_enter": True}),
        {"role": "user", "content": [image(2)]},
        {"role": "assistant", "tool_calls": [make_tool_call(*ending)]},
    ]
    dropped = pop_terminal_terminate(chat)
    if dropped:
        chat.append(structural_final_message())
    chat = finalize_use_messages(chat)
    held = meta("use", chat, **terminate_outcome_others(dropped), **others)
    return {"images": shots, "messages": chat, "metadata": held}
def place(tool, coordinate, text):
    chat = [user(0, text), {"role": "assistant", "tool_calls": [make_tool_call(tool, {"coordinate": coordinate})]}]
    stamp_messages_tool_call_ids(chat, preserve=True)
    return {"images": shots[:1], "messages": chat, "metadata": meta("grounding." + tool, chat, source_id=text)}
def save(rows, kind, split="train"):
    path = staging.partition_path(out, platform="desktop", task_type=kind, split=split, variant="theirs")
    staging.write_partition(rows, path)
save([use(("terminate", {"status": "success"}), episode_return=1.0),
      use(("terminate", {"status": "failure", "reason": "no rights"})), use(("response", {"text": "42"}))], "use")
save([use(("terminate", {"status": "success"}))], "use", "validation")
save([place("point", [250, 1000], "Locate the element: Save"), place("point", [1, 2], "Locate the element: Open")],
     "grounding.point")
save([place("bbox", [100, 200, 300, 400], "Locate the element: Save")], "grounding.bbox")
hub = root / "hub" / "desktop" / "grounding.point" / "train" / "theirs" / "shard-00000-of-00001.parquet"
rows = [staging.serialize_opaque_json_fields(place("point", [at, at], f"Locate the element: {at}")) for at in (1, 2)]
rows = fold_rows(rows)
for row in rows:
    row["images"] = [{"bytes": (root / row["images"][0]).read_bytes(), "path": None}]
staging.write_partition(rows, hub)
"""


def theirs(script: str, *arguments: object, given: Any = None) -> str:
    """What a script prints that uses cua-lite's code."""
    done = subprocess.run(
        [PYTHON, "-c", script, *map(str, arguments)], input=json.dumps(given), capture_output=True, text=True,
        timeout=600, env={**os.environ, "PYTHONPATH": CHECKOUT}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def digest(row: dict[str, Any]) -> str:
    """A digest of a row without the names of its images, whose bytes are of the library that writes them."""
    whole = [len(row["images"]), row["messages"], row["metadata"]]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def follows_the_rules(row: dict[str, Any]) -> bool:
    """Whether the rules that these tests have written down have nothing against a row."""
    try:
        return not list(flaws(row))
    except KeyError:
        return False


def test_our_rows_are_those_that_cua_lite_accepted_and_the_flawed_ones_those_that_it_refused() -> None:
    golden, made = json.loads(GOLDEN.read_text()), rows()
    assert {name: one["sha256"] for name, one in golden.items()} == {name: digest(row) for name, row in made.items()}
    accepted = {name for name, one in golden.items() if one["accepted"]}
    assert made.keys() - accepted == FLAWS.keys() - {*UNCHECKED}
    whole = [name for name, row in made.items() if row["metadata"].get("dims", [""])[-1] == "use"]
    assert {name for name in whole if follows_the_rules(made[name])} == accepted & {*whole}


@pytest.mark.nightly
@THEIRS
def test_cua_lites_own_validators_have_these_verdicts() -> None:
    made = rows()
    found = json.loads(theirs(JUDGE, given=made))
    verdicts = {name: {"accepted": not found[name], "sha256": digest(row)} for name, row in made.items()}
    if os.environ.get("FLYWHEEL_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(verdicts, indent=1) + "\n")
    assert verdicts == json.loads(GOLDEN.read_text()), found


@pytest.mark.nightly
@THEIRS
@pytest.mark.parametrize("form", [CuaLite(), CuaLiteHub()], ids=lambda one: one.name)
def test_cua_lites_own_loaders_read_every_export(form: CuaLite, tmp_path: Path) -> None:
    many = list[Exchanged]()

    @settings(max_examples=100, deadline=None, database=None)
    @given(RECORDS)
    def draw(records: list[Exchanged]) -> None:
        many.extend(records)

    draw()
    folder = written(form, many, tmp_path)
    assert json.loads(theirs(LOAD, folder)) == len(many)


@pytest.mark.nightly
@THEIRS
def test_rows_that_cua_lites_own_code_wrote_are_imported(tmp_path: Path) -> None:
    theirs(WRITE, tmp_path, given=[picture(shade).png.hex() for shade in range(3)])
    found = taken(CuaLite(), tmp_path / "cua-lite")
    done, failed, answered = (one for one in found if not one.questions)
    assert [step.actions for step in done.steps] == [
        (Click(x=0.5, y=0.25),), (Hotkey(key="ctrl a"), Type(content="b\n")), (Finished(),)
    ]  # fmt: skip
    assert [step.screen for step in done.steps] == [picture(0), picture(1), picture(2)]
    assert (done.success, failed.success, answered.success) == (True, False, None)
    assert failed.steps[-1].actions == (CallUser(content="no rights"),)
    assert answered.steps[-1].actions == (Finished(content="42"),)
    asked = {(one.name, one.x, one.y) for record in found for one in record.questions}
    assert asked == {("Save", 0.25, 1.0), ("Open", 0.001, 0.002), ("Save", 0.2, 0.3)}
    shared = taken(CuaLiteHub(), tmp_path / "hub")
    assert [one.questions[0].name for one in shared] == ["1", "2"]
    for form in (CuaLite(), CuaLiteHub()):
        folder = written(form, [*found, *shared], tmp_path / "again" / form.name)
        assert json.loads(theirs(LOAD, folder)) == len(found) + len(shared)
