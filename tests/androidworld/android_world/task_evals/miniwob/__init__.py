"""Part of the stand-in for AndroidWorld."""
