"""Statistics on arrays: agreement, intervals, calibration error; this room knows no record."""
