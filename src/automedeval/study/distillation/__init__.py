"""Distillation: teachers judge with the knowledge completion chain over reference books (paper, section 3.1, Algorithm 1).

The books are in `evidence`. What becomes of the verdicts, for example a data set, belongs into `dataset`.
"""
