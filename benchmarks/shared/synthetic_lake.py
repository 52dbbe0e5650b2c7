"""A lake of any size for benchmarks of what reads it: made by SQL, written through the lake's own tables.

No sandbox, no model: trajectories of 1 to 15 steps (8 on average), six in ten accepted, every second one with thoughts
of its own; in three of ten steps the screen is one that the trajectory has shown before; two trajectories share their
screens. Pictures have MiniWoB++'s size, and every new screen has six grounding questions. The same numbers make the
same rows.
"""

import hashlib
import io
from datetime import UTC, datetime

import duckdb
import numpy as np
import pyarrow as pa
from PIL import Image, ImageDraw

from schemas.tables import TABLES
from storage import filters
from storage.lake import Lake

WIDTH, HEIGHT = 160, 210
MEAN_STEPS = 8
TOGETHER = 2_500
"""Trajectories of one iteration."""
PICTURES = 64
"""Different drawings; further pictures are these with a number behind their end."""
TASKS = 15

_TRAJECTORIES = """
CREATE TABLE made AS
SELECT
    number,
    left(sha256('trajectory ' || number), 24) AS trajectory_id,
    $iteration::INTEGER AS iteration,
    (hash(number, 1) % 15)::INTEGER + 1 AS n_steps,
    hash(number, 2) % 10 < 6 AS accepted,
    number % 2 = 0 AS thinks,
    'synthetic/task-' || number // 2 % $tasks AS task_id
FROM range($first::BIGINT, $last::BIGINT) numbers(number);
"""
_STEPS = """
CREATE TABLE unnamed AS
SELECT
    *,
    (number // 2) || ' ' || CASE WHEN step > 0 AND hash(number // 2, step, 3) % 10 < 3 THEN step - 1 ELSE step END
        AS scene,
    (hash(number, step, 4) % 9000 + 500) / 10000.0 AS x,
    (hash(number, step, 5) % 9000 + 500) / 10000.0 AS y
FROM (SELECT *, unnest(range(n_steps))::INTEGER AS step FROM made);
"""
_TABLES = {
    "trajectories": """
        SELECT
            trajectory_id, iteration, 'synthetic' AS run_id, task_id, (number % 1000000)::BIGINT AS seed,
            'train' AS split, NULL::VARCHAR AS group_id, 0 AS attempt, if(thinks, 'policy', 'explorer') AS policy,
            'synthetic' AS policy_version, 'Click on the button of number ' || number || '.' AS instruction, n_steps,
            accepted::INTEGER::FLOAT AS reward, accepted AS success, 'done' AS termination,
            NULL::VARCHAR AS failure_boundary, NULL::VARCHAR AS failure_reason, '{}' AS sampling,
            $now::TIMESTAMPTZ AS started_at, 1.0::FLOAT AS wall_s
        FROM made""",
    "verdicts": """
        SELECT
            trajectory_id, 'route' AS gate, '1' AS gate_version, iteration, accepted AS passed, NULL::FLOAT AS score,
            NULL::INTEGER AS error_step, 'synthetic' AS reason, if(accepted, 'sft', 'ct') AS route,
            $now::TIMESTAMPTZ AS created_at, NULL::INTEGER AS valid_steps
        FROM made""",
    "steps": """
        SELECT
            trajectory_id, step, iteration, screenshot,
            lead(screenshot) OVER (PARTITION BY trajectory_id ORDER BY step) AS next_screenshot,
            160 AS screen_width, 210 AS screen_height,
            if(thinks, 'The button of number ' || number || ' is the one, at step ' || step || '.', '') AS thought,
            '{"type":"click","x":' || x || ',"y":' || y || '}' AS action, 'click' AS action_type,
            x::FLOAT AS x, y::FLOAT AS y, 'box_v1' AS dialect, '' AS raw_text, NULL::VARCHAR AS action_error,
            if(thinks, 'policy', 'explorer') AS actor, 'synthetic' AS policy_version,
            NULL::INTEGER[] AS token_ids, NULL::FLOAT[] AS logprobs, '[]' AS elements,
            1.0::FLOAT AS observe_ms, 1.0::FLOAT AS think_ms, 1.0::FLOAT AS act_ms
        FROM walked""",
    "annotations": """
        SELECT
            left(sha256('thought ' || trajectory_id || step), 24) AS annotation_id, trajectory_id, step, iteration,
            'thought' AS kind, 'template' AS author, 'Click it, at step ' || step || '.' AS thought,
            NULL::VARCHAR AS action, NULL::VARCHAR AS before, NULL::VARCHAR AS after, $now::TIMESTAMPTZ AS created_at
        FROM walked WHERE accepted AND NOT thinks
        UNION ALL
        SELECT
            left(sha256('place ' || trajectory_id || step || place), 24), trajectory_id, step, iteration,
            'grounding', 'page', 'button ' || place,
            '{"type":"click","x":' || (hash(screenshot, place) % 9999) / 10000.0 || ',"y":0.' || place + 1 || '}',
            NULL, NULL, $now::TIMESTAMPTZ
        FROM (FROM walked QUALIFY row_number() OVER (PARTITION BY screenshot ORDER BY trajectory_id, step) = 1),
            range(6) places(place)""",
}
_SCENES = "SELECT DISTINCT scene, (hash(scene) % $pictures)::INTEGER AS drawing FROM unnamed ORDER BY scene"
_NAMED = "CREATE TABLE walked AS SELECT unnamed.*, screenshot FROM unnamed JOIN named USING (scene)"


def fill(lake: Lake, steps: int) -> int:
    """Adds about so many steps, with all that goes with them; returns how many trajectories."""
    count = -(-steps // MEAN_STEPS)
    for iteration, first in enumerate(range(0, count, TOGETHER)):
        _iteration(lake, iteration, first, min(first + TOGETHER, count))
    return count


def _iteration(lake: Lake, iteration: int, first: int, last: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with duckdb.connect() as made:
        made.execute(_TRAJECTORIES, {"iteration": iteration, "first": first, "last": last, "tasks": TASKS})
        made.execute(_STEPS)
        pictures = _pictures(made.sql(_SCENES, params={"pictures": PICTURES}).to_arrow_table())
        made.register("named", pictures)
        made.execute(_NAMED)
        for table, query in _TABLES.items():
            parameters = {"now": now} if "$now" in query else {}
            given = made.sql(query, params=parameters)
            whole = f"SELECT {filters.columns(TABLES[table], given.columns)} FROM given"
            lake.append(table, made.sql(whole).to_arrow_table())
    columns = {
        "sha256": pictures["screenshot"],
        "iteration": pa.repeat(pa.scalar(iteration, pa.int32()), len(pictures)),
        "png": pictures["png"],
        "width": pa.repeat(pa.scalar(WIDTH, pa.int32()), len(pictures)),
        "height": pa.repeat(pa.scalar(HEIGHT, pa.int32()), len(pictures)),
        "phash": pa.repeat(pa.scalar("0" * 16), len(pictures)),
    }
    lake.append("screenshots", pa.table(columns))


def _pictures(scenes: pa.Table) -> pa.Table:
    """A picture of each scene, by the name that its bytes have."""
    drawings = [_drawing(number) for number in range(PICTURES)]
    pngs = [
        drawings[drawing] + scene.encode()
        for scene, drawing in zip(scenes["scene"].to_pylist(), scenes["drawing"].to_pylist(), strict=True)
    ]
    names = [hashlib.sha256(png).hexdigest() for png in pngs]
    return pa.table({"scene": scenes["scene"], "screenshot": names, "png": pa.array(pngs, pa.binary())})


def _drawing(number: int) -> bytes:
    """A page with a few boxes, about 3 KB."""
    rng = np.random.default_rng(number)
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    canvas = ImageDraw.Draw(image)
    for left, top, red, green, blue in rng.integers(0, 120, (60, 5)):
        canvas.rectangle((left, top, left + 30, top + 12), fill=(int(red), int(green), int(blue) + 100))
    out = io.BytesIO()
    image.save(out, "png")
    return out.getvalue()
