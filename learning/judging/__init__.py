"""Trains the local judge: cases and points on disk, the fit, its calibration."""
