"""Verdicts of judges against ratings of people: cases, ratings, verdicts as arrays, and every figure of agreement.

No page and no file name of a report belongs here.
"""
