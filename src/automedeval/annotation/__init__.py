"""The physicians' page: give out the items of a study, keep the answers, and export them as records."""
