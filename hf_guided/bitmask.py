"""``hf_guided.vocabulary.bitmask`` under the name that plug-ins import."""

from .vocabulary.bitmask import WORD_BITS, allocate_bitmask, apply_bitmask_reference, check_width, pack, unpack, words

__all__ = ["WORD_BITS", "allocate_bitmask", "apply_bitmask_reference", "check_width", "pack", "unpack", "words"]
