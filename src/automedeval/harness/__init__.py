"""Logs of evaluation harnesses, read as cases. No harness is needed to import this room."""
