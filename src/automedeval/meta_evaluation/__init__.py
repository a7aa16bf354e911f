"""Meta-evaluation: compare judges' verdicts with people's ratings (paper, section 4).

Nothing here asks a model: it reads verdicts, ratings and cases from files, and writes figures and pages.
"""
