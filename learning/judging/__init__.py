"""The wheel's own judge is trained here: cases and points on the disk, the fit, its calibration."""
