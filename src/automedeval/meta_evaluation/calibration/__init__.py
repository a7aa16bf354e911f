"""What a verdict's score is worth: scores fitted to people's ratings, and the confidence behind abstention.

Figures of agreement belong into `agreement`.
"""
