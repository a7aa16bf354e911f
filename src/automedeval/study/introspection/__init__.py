"""Iterative knowledge introspection: find, discuss and revise verdicts for the next training (paper, section 3.3).

The training itself is that of `training`; here only its next data set is made.
"""
