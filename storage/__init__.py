"""Import pyarrow's datasets without pandas.

pyarrow imports pandas with its datasets, which takes 0.4 s at the start of a process. Conversions to pandas still
import it later.
"""

import sys


class _Hidden:
    """Hides pandas from imports."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError("hidden while pyarrow starts")


sys.meta_path.insert(0, _Hidden)
try:
    import pyarrow.dataset  # noqa: F401
finally:
    sys.meta_path.remove(_Hidden)
