"""The gate as Great Expectations does it alone: whole tables in pandas. Its answers are what the gate's must be."""

from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pandas as pd

from schemas.table import Expectation, Table
from storage.lake import Lake
from storage.quality.gate import name_of
from storage.quality.rows import expectations_of, rows_of


def pandas_gate(lake: Lake, contract: Table, iteration: int) -> dict[str, Any]:
    """Great Expectations' results of one table by the names of its expectations."""
    with rows_of(lake, contract, iteration) as connection:
        rows: pd.DataFrame = connection.table("rows").df()
    return judged_in_pandas(rows, expectations_of(contract), contract.key)


def judged_in_pandas(rows: pd.DataFrame, expectations: list[Expectation], key: tuple[str, ...]) -> dict[str, Any]:
    """The same of a frame."""
    context: Any = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    checks = [getattr(gxe, each.kind)(**each.arguments, meta={"name": name_of(each)}) for each in expectations]
    suite = context.suites.add(gx.ExpectationSuite(name="suite", expectations=checks))
    asset = context.data_sources.add_pandas("frames").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all")
    definition = gx.ValidationDefinition(name="gate", data=batch, suite=suite)
    context.validation_definitions.add(definition)
    wanted = {"result_format": "COMPLETE", "unexpected_index_column_names": list(key)}
    results: list[Any] = definition.run(batch_parameters={"dataframe": rows}, result_format=wanted).results
    return {result.expectation_config.meta["name"]: result for result in results}
