"""Candidates compared from verdicts and few ratings, with intervals that hold, and the page of it.

Agreement of a judge with people belongs into `agreement`.
"""
