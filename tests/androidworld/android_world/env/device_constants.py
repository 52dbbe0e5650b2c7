"""The time of the phone, and the place of its snapshots."""

import datetime

DT = datetime.datetime(2023, 10, 15, 15, 34, tzinfo=datetime.UTC)
SNAPSHOT_DATA = "/data/snapshots"
