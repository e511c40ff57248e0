"""The exact bytes of every token, what the tokenizer writes after other text, and the layout of a bitmask."""

from .tokens import Vocabulary

__all__ = ["Vocabulary"]
