"""Metrics that need no judge: baselines, and `rationale_score`, a folder that the Hub copies and that stands alone.

A metric here reads two texts and knows neither a case nor a rubric.
"""
