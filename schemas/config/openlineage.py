"""The `openlineage` section of the config: the target of lineage events."""

from typing import Annotated

from pydantic import Field

from schemas.config.section import Positive, Section


class OpenLineageConfig(Section):
    """Events in OpenLineage's form, at the begin and end of every stage and retraining."""

    to: Annotated[str, Field(pattern=r"^(https?://.+|[^:]*)$")] = ""
    """A file that a line of JSON is added to for each event, or the `http://` or `https://` address that they are
    posted to, such as `http://marquez:5000/api/v1/lineage`; nothing is sent if empty."""
    namespace: str = "flywheel"
    """Namespace of the jobs. Data sets are named by their place: `s3://BUCKET` and `PREFIX/tables/steps`, or `file` and
    the path."""
    key_variable: str = "OPENLINEAGE_API_KEY"
    """The environment variable that holds the key of the address; none is sent if it is not set."""
    timeout_s: Positive = 5.0
    """An event whose delivery takes longer is lost, and so are those of the minute that follows; the loss is reported
    once. No run waits for it, but for so long at its very end."""
