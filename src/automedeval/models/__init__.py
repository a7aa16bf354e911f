"""Models that answer prompts: an OpenAI-compatible endpoint, a local checkpoint, a recording; and encoders.

A model here knows no rubric and no case: prompts and forms of answers come in, texts and probabilities go out.
"""
