"""The config and its reader."""

from schemas.config.load import config_of, load_config
from schemas.config.sections import Config

__all__ = ["Config", "config_of", "load_config"]
