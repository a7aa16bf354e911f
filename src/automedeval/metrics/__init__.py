"""Metrics that need no judge: lexical baselines, and `rationale_score`, a folder that the Hub copies and that stands alone."""
