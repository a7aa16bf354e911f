"""What a verdict's score is worth: scores fitted to people's ratings.

Figures of agreement belong into `agreement`.
"""
