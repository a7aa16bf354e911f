"""Verdicts of judges against ratings of people: every figure of agreement.

No page and no file name of a report belongs here.
"""
