"""Judges: plan the requests of a case, ask a model, read its answers as verdicts, and log them."""
