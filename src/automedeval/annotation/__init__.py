"""Serve the physicians' page: assign the items of a study, store the answers, and export them as records."""
