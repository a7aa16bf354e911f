"""Serve the physicians' page: assign the items of a study, store the answers, and export them as records.

No other room imports this one, and it computes no agreement: it exports ratings, and `meta_evaluation` reads them.
"""
