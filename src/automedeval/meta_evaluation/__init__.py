"""Meta-evaluation: compare judges' verdicts with people's ratings (paper, section 4)."""
