"""What a verdict's score is worth: scores fitted to people's ratings, and from which probability on a checker's finding counts.

Figures of agreement belong into `agreement`.
"""
