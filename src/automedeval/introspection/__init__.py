"""Iterative knowledge introspection: find, discuss and revise wrong verdicts, then train on (paper, section 3.3)."""
