"""What a verdict's score is worth: scores fitted to people's ratings, and from which confidence on its order can be relied on.

Figures of agreement belong into `agreement`.
"""
