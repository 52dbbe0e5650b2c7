"""Part of the stand-in for android_env."""
