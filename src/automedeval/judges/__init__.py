"""Judges: plan the requests of a case, ask a model, read its answers as verdicts, and log them.

Holding verdicts against people belongs into `meta_evaluation`, and what answers a prompt into `models`.
"""
