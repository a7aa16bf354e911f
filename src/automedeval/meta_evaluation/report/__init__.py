"""The page of a meta-evaluation: its figures, sentences, tables and cases, filled from the result of `agreement`.

Nothing is computed here that `agreement.json` does not hold.
"""
