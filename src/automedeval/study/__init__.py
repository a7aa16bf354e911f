"""The paper's study, a folder for each step: teachers judge, a data set is built, a judge learns, is corrected and published.

What a step shares with a user's own judge (rubrics, models, records) is in the rooms below.
"""
