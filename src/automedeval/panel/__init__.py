"""Panels: freeze what physicians checked of a judge, replay it with today's judge, and tell whether that is worse.

Planted dangers come from `audit`, decisions from `stats.gate`; no model is loaded here but by `judges`.
"""
