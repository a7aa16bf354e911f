"""Verdicts: those of a judge as one table beside the cases and people's ratings, with the rules for ties and empty answers.

`files` reads them, `table` holds them, `cases` numbers the responses, `ratings` places what people said.
"""
