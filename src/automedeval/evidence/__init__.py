"""Evidence: books and the store that searches them, and the numbers of an answer beside it.

What a judge or a report makes of the result belongs to those rooms.
"""
