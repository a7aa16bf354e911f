"""Judges that say which criteria an answer meets: their agreement with people's labels, their scores, their report.

Judges that score a whole answer belong into `agreement`.
"""
