"""Statistics on arrays: agreement, intervals, calibration error; this room knows no record.

Reading files, and deciding what a figure means, belong into the rooms that call it.
"""
