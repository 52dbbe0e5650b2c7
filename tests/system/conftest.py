"""Fixtures that several system tests share."""

from tests.system.s3 import credentials, endpoint

__all__ = ["credentials", "endpoint"]
