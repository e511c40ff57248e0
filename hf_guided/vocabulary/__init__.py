"""The exact bytes of every token, the tokens that a tokenizer writes after a text, and the layout of a bitmask."""

from .tokens import Vocabulary

__all__ = ["Vocabulary"]
