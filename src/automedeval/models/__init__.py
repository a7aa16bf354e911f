"""Models that answer prompts: an OpenAI-compatible endpoint, a local checkpoint, a recording; and encoders.

A model here knows no rubric and no case: prompts and forms of answers come in, texts and probabilities go out.
"""

import os

# Threads that wait give their core away: else the model computes nearly nothing on a busy machine. GNU's and LLVM's OpenMP
# have a name each, and read it when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")
