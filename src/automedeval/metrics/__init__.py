"""Metrics that stand alone: each folder here is one Space of the Hub, and imports nothing of this package."""
