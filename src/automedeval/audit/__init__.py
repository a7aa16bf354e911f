"""Audits: edit cases, judge them again, and measure position bias, length bias, attacks and missed harm.

What a page of an audit shows is computed here; a judge is asked through `judges`, and no model is loaded here.
"""
