"""Stand in for android_env."""
