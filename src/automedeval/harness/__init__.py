"""Evaluation harnesses: their logs read as cases, and a judge that scores inside inspect_ai or rewards a training.

No harness is needed to import this room; only `inspect_scorer` imports one.
"""
