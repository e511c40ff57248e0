"""The layout of a bitmask, for code that does without torch."""

WORD_BITS = 32
ALL_ALLOWED = -1  # every bit of an int32 word


def words(vocab_size: int) -> int:
    """Count the int32 words that cover ``vocab_size`` tokens."""
    return (vocab_size + WORD_BITS - 1) // WORD_BITS
