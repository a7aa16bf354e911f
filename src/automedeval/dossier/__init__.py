"""Dossiers: what a run says to the items of reporting lists, and a ledger that shows any later change of its files.

No figure is computed here: each is read from a file of the run, which stands beside it.
"""
