"""Training: the curriculum stages that TRL's SFTTrainer runs (paper, section 3.2).

What the rows say is decided in `dataset` and `introspection`.
"""
