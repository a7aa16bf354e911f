"""Evaluation harnesses: their logs read as cases, verdicts written back, and a judge that scores inside them.

No harness is needed to import this room; `inspect_scorer` and `lighteval_metric` are imported by those two alone.
"""
