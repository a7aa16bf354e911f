"""Iterative knowledge introspection: find, discuss and revise verdicts for the next training (paper, section 3.3)."""
