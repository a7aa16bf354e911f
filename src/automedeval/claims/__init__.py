"""Whether the statements of an answer agree with a text that says what is true: a reference, books, or the other answers.

Here lives how an answer becomes statements, how passages are found for them, and what reads the two together. What a judge or a
report makes of the result belongs to those rooms; what a checker learns from belongs to `dataset`.
"""
