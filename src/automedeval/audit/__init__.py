"""Audits: edit cases, judge them again, and measure position bias, length bias, attacks and missed harm."""
