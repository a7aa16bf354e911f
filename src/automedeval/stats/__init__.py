"""Statistics on arrays: agreement, intervals, calibration error, aggregation; this room knows no record."""
