"""Structured generation: the generated text has the format that `response_format` describes."""

from hf_guided.generation.custom_generate import generate

__all__ = ["generate"]
