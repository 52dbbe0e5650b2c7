"""The dashboard: where the wheel stands and what it does now, as pages beside the review desk's."""
