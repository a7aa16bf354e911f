"""Training: the curriculum stages that TRL's SFTTrainer runs (paper, section 3.2)."""
