"""Distillation: teachers judge with the knowledge completion chain over reference books (paper, section 3.1, Algorithm 1)."""
