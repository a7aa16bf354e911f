"""Evaluation harnesses: their logs read as cases, verdicts written back, and a judge that scores inside inspect_ai.

No harness is needed to import this room; only `inspect_scorer` imports one.
"""
