"""Models that answer prompts: an OpenAI-compatible endpoint, a local checkpoint, a recording; and encoders."""
