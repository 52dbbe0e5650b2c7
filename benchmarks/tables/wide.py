"""Make a lake of any number of iterations by SQL, for benchmarks that read all of them or a whole one.

Six tables: two steps (if not given) and four verdicts to a trajectory, a new picture of a few bytes for every fourth
step. Steps after the second one type a text. Rows go straight to Delta, without the lake's own check of keys.
"""

from datetime import UTC, datetime

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from schemas.table import Table
from schemas.tables import TABLES
from storage import filters, upkeep
from storage.lake import Lake

STEPS_EACH = 2
NOW = datetime(2026, 1, 1, tzinfo=UTC)
_MADE = "SELECT number, left(sha256('t ' || number), 24) AS trajectory_id FROM range($first, $last) t(number)"
_TABLES = {
    "screenshots": """
        SELECT sha256('s ' || number) AS sha256, $iteration AS iteration, ('s ' || number)::BLOB AS png, 160 AS width,
            210 AS height,
            repeat('0', 128) AS phash
        FROM range($first * $steps // 4, $last * $steps // 4) t(number)""",
    "trajectories": """
        SELECT trajectory_id, $iteration AS iteration, 'run' AS run_id, 'synthetic/task-' || number % 50 AS task_id,
            number % 1000000 AS seed, 'train' AS split, NULL::VARCHAR AS group_id, 0 AS attempt, 'policy' AS policy,
            'policy-0001' AS policy_version, 'Click on the button of number ' || number || '.' AS instruction,
            $steps AS n_steps, (number % 2)::FLOAT AS reward, number % 2 = 1 AS success, 'done' AS termination,
            NULL::VARCHAR AS failure_boundary, NULL::VARCHAR AS failure_reason, '{}' AS sampling, $now::TIMESTAMPTZ
            AS started_at, 1.5::FLOAT AS wall_s
        FROM made""",
    "steps": """
        SELECT trajectory_id, step::INTEGER AS step, $iteration AS iteration,
            sha256('s ' || (number * $steps + step) // 4) AS screenshot,
            NULL::VARCHAR AS next_screenshot, 160 AS screen_width, 210 AS screen_height,
            'The button of number ' || number || if((number + step) % 2 = 0, ' is', ' may be')
                || ' the one.' AS thought,
            [if(step < 2, '{"type":"click","x":0.5,"y":0.25}',
                '{"content":"I said \\"Stra\\u00dfe\\"\\n' || number || '","type":"type"}')] AS actions,
            []::VARCHAR[] AS frames,
            'click' AS action_type, 0.5::FLOAT AS x, 0.25::FLOAT AS y,
            'box_v1' AS dialect, 'Thought: it is the one. Action: click' AS raw_text, NULL::VARCHAR AS action_error,
            'policy' AS actor, 'policy-0001' AS policy_version, NULL::INTEGER[] AS token_ids, NULL::FLOAT[] AS logprobs,
            '[]' AS elements, 1.0::FLOAT AS observe_ms, 1.0::FLOAT AS think_ms, 1.0::FLOAT AS act_ms
        FROM made, range($steps) s(step)""",
    "verdicts": """
        SELECT trajectory_id, ['environment', 'success', 'shortcut', 'route'][gate + 1] AS gate, '1' AS gate_version,
            $iteration AS iteration, true AS passed, NULL::FLOAT AS score, NULL::INTEGER AS error_step,
            'it may pass' AS reason,
            'sft' AS route, $now::TIMESTAMPTZ AS created_at, NULL::INTEGER AS valid_steps
        FROM made, range(4) g(gate)""",
    "annotations": """
        SELECT left(sha256('a ' || number), 24) AS annotation_id, trajectory_id, 0 AS step, $iteration AS iteration,
            'thought' AS kind, 'template' AS author, 'Click it.' AS thought, NULL::VARCHAR AS action,
            NULL::VARCHAR AS before, NULL::VARCHAR AS after, $now::TIMESTAMPTZ AS created_at
        FROM made WHERE number % 10 = 0""",
    "curriculum": """
        SELECT $iteration AS iteration, 'synthetic/task-' || n AS task_id, 0.02 AS weight, 0 AS explorer_trajectories,
            (($last - $first) // 50)::INTEGER AS policy_trajectories, 0 AS relay_trajectories,
            'learnable' AS pool, 1.0 AS successes, 1.0 AS failures, 'learnable' AS reason
        FROM range(50) t(n)""",
}


def fill_iterations(lake: Lake, trajectories: int, iterations: int = 1, steps: int = STEPS_EACH) -> None:
    """Write iterations of so many trajectories each, of so many steps, by one policy version."""
    with duckdb.connect(config={"memory_limit": "512MiB", "threads": 2}) as made:
        for iteration in range(iterations):
            first = trajectories * iteration
            numbers = {"$first": first, "$last": first + trajectories, "$iteration": f"{iteration}::INTEGER"}
            numbers["$steps"] = f"{steps}::INTEGER"
            made.execute(f"CREATE OR REPLACE VIEW made AS {_filled(_MADE, numbers)}")
            for table, query in _TABLES.items():
                _write(lake, TABLES[table], made, _filled(query, numbers))


def _filled(query: str, numbers: dict[str, object]) -> str:
    for name, value in numbers.items():
        query = query.replace(name, str(value))
    return query


def _write(lake: Lake, contract: Table, made: duckdb.DuckDBPyConnection, query: str) -> None:
    given = made.sql(query, params={"now": NOW} if "$now" in query else {})
    whole = made.sql(f"SELECT {filters.columns(contract, given.columns)} FROM given").to_arrow_reader(100_000)
    batches = (batch.cast(contract.schema) for batch in whole)
    write_deltalake(
        f"{lake.uri}/tables/{contract.name}",
        pa.RecordBatchReader.from_batches(contract.schema, batches),
        mode="append",
        partition_by=list(contract.partition_by),
        configuration=upkeep.configuration(contract),
        writer_properties=upkeep.writer_properties(contract.name),
    )
