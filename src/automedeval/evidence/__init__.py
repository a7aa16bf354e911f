"""Evidence: books and the store that searches them, the statements of an answer, and whether the two agree.

What a judge or a report makes of the result belongs to those rooms; what a checker learns from belongs to `dataset`.
"""
