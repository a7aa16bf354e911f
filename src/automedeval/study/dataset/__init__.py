"""Build the instruction data set: from public rows and teacher verdicts to curriculum splits (paper, sections 3.1, 3.2).

Asking a teacher belongs into `distillation`, and training into `training`.
"""
