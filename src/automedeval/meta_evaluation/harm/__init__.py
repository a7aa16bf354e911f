"""Harm by degree: what physicians and judges say of it, and how far they agree.

Import from the modules inside; this package exports nothing.
"""
