"""The physicians' page: a study's items are given out, answered, kept, and exported as the records that recipes read."""
