"""Structured generation: the text that comes out is in the language that `response_format` asks for."""

from hf_guided.hf.custom_generate import generate

__all__ = ["generate"]
