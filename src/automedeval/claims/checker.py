"""The small checker."""

SUPPORTED, CONTRADICTED, NOT_FOUND = "supported", "contradicted", "not_found"
LABELS = (SUPPORTED, CONTRADICTED, NOT_FOUND)
PAIR_TOKENS = 128  # of passage and statement together
