"""Mutants that no test can notice, or that no test of the default run should: each with the reason."""

# ruff: noqa: E501  # lines of code are quoted whole

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    """A mutant that may survive.

    Args:
        file: under hf_guided/.
        old: the line that changes.
        new: what it becomes.
        why: what makes the mutant equivalent, or where the difference is tested.
    """

    file: str
    old: str
    new: str
    why: str


EXPLAINED: list[Explained] = [
    Explained(
        "session/tracker.py",
        "self.prompt_length = 0  # tokens before the output in the last call",
        "pass  # tokens before the output in the last call",
        "the first call of update() sets it before anything reads it",
    ),
    Explained(
        "session/tracker.py",
        "self.prompt_length = 0  # tokens before the output in the last call",
        "self.prompt_length = 1  # tokens before the output in the last call",
        "the first call of update() sets it before anything reads it",
    ),
    Explained(
        "session/tracker.py",
        "if refused:",
        "if True:",
        "reporting no rows does nothing",
    ),
    Explained(
        "session/tracker.py",
        "if self.is_step_to(ids):",
        "if False:",
        "a step in the same order is a case of the search for parents; this way is faster",
    ),
    Explained(
        "session/apply.py",
        "_GATHER_SHARE = 1 / 8",
        "_GATHER_SHARE = 1 * 8",
        "both ways give the same row; the share decides which one is faster",
    ),
    Explained(
        "session/apply.py",
        "check_width(bitmask, scores.shape[-1])",
        "check_width(bitmask, scores.shape[+1])",
        "the tensor has two dimensions: 1 is the last one",
    ),
    Explained(
        "session/apply.py",
        "numbers = target.view(np.float32) if scores.dtype is torch.float32 else masked.double().numpy()",
        "numbers = target.view(np.float32) if (scores.dtype is torch.float32) and False else masked.double().numpy()",
        "a float64 copy of float32 scores has the same maximum; the view is faster",
    ),
    Explained(
        "session/apply.py",
        "if np.count_nonzero(nonzero) <= few:",
        "if False:",
        "both ways give the same row; the share decides which one is faster",
    ),
    Explained(
        "session/apply.py",
        "if np.count_nonzero(nonzero) <= few:",
        "if True:",
        "both ways give the same row; the share decides which one is faster",
    ),
    Explained(
        "session/apply.py",
        "if np.count_nonzero(nonzero) <= few:",
        "if np.count_nonzero(nonzero) < few:",
        "both ways give the same row; the share decides which one is faster",
    ),
    Explained(
        "session/apply.py",
        "if np.count_nonzero(gaps) <= few:",
        "if False:",
        "both ways give the same row; the share decides which one is faster",
    ),
    Explained(
        "hf/drafts/verify.py",
        "best = read(scores.argmax(-1))",
        "best = read(scores.argmax(+1))",
        "the tensor has two dimensions: 1 is the last one",
    ),
    Explained(
        "hf/drafts/verify.py",
        "p = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))  # (positions, vocab)",
        "p = scores.softmax(+1, dtype=torch.promote_types(scores.dtype, torch.float32))  # (positions, vocab)",
        "the tensor has two dimensions: 1 is the last one",
    ),
    Explained(
        "hf/decode/forced_text.py",
        "_RARE = 8  # joins with less than one in this many of the possible next bytes are ignored",
        "_RARE = 9  # joins with less than one in this many of the possible next bytes are ignored",
        "a limit of a heuristic, which 9 keeps as well: rare joins are ignored",
    ),
    Explained(
        "hf/decode/forced_text.py",
        "_SEAM = 24  # bytes at the end of forced text that are examined",
        "_SEAM = 25  # bytes at the end of forced text that are examined",
        "a limit of a heuristic, which 25 keeps as well: no token of the tests' vocabularies is that long",
    ),
    Explained(
        "hf/decode/forced_text.py",
        "self._bitmask = allocate_bitmask(1, self.vocabulary.padded_size)",
        "self._bitmask = allocate_bitmask(2, self.vocabulary.padded_size)",
        "only the first row of the bitmask is used",
    ),
    Explained(
        "hf/decode/forced_text.py",
        "for byte in sorted(byte for byte in joining if byte < 0x80)[:_TRIED]:",
        "for byte in sorted(byte for byte in joining if byte < 129)[:_TRIED]:",
        "the text ends with a whole character, and no character begins with the byte 0x80",
    ),
    Explained(
        "hf/decode/forced_text.py",
        "for byte in sorted(byte for byte in joining if byte < 0x80)[:_TRIED]:",
        "for byte in sorted(byte for byte in joining if byte <= 0x80)[:_TRIED]:",
        "the text ends with a whole character, and no character begins with the byte 0x80",
    ),
    Explained(
        "hf/decode/forced_text.py",
        "next_bytes = self.continuation.leading_bytes(self._bitmask[0].numpy()) if filled else frozenset()",
        "next_bytes = self.continuation.leading_bytes(self._bitmask[0].numpy()) if (filled) or True else frozenset()",
        "the engine has reached its limit and the row ends: more of its forced text, or less, is as right",
    ),
    Explained(
        "hf/decode/forced_text.py",
        "if lead >= 0xC0:",
        "if lead >= 193:",
        "UTF-8 has no byte 0xC0",
    ),
    Explained(
        "hf/decode/processors.py",
        "groups.setdefault(0 if blind else len(before), []).append(position)",
        "groups.setdefault(0 if (blind) and False else len(before), []).append(position)",
        "processors that do not read the tokens give the same scores in groups; one group is faster",
    ),
    Explained(
        "hf/decode/sequences.py",
        "sequence.likely = forced.likely",
        "pass",
        "only a draft: without it the same tokens take more passes",
    ),
    Explained(
        "hf/decode/cache_slots.py",
        "self._num_slots = self._num_prompt_slots = 0",
        "self._num_slots = self._num_prompt_slots = 1",
        "both count only with holes, and then prefill() sets them",
    ),
    Explained(
        "hf/decode/cache_slots.py",
        "self.padding = (mask[:, mask.shape[1] - self._ids.shape[1] :].cumsum(-1) == 0).sum(-1).tolist()",
        "self.padding = (mask[:, mask.shape[1] - self._ids.shape[1] :].cumsum(+1) == 0).sum(-1).tolist()",
        "the tensor has two dimensions: 1 is the last one",
    ),
    Explained(
        "hf/decode/cache_slots.py",
        "self.padding = (mask[:, mask.shape[1] - self._ids.shape[1] :].cumsum(-1) == 0).sum(-1).tolist()",
        "self.padding = (mask[:, mask.shape[1] - self._ids.shape[1] :].cumsum(-1) == 0).sum(+1).tolist()",
        "the tensor has two dimensions: 1 is the last one",
    ),
    Explained(
        "hf/decode/cache_slots.py",
        "if any(gaps):",
        "if True:",
        "without gaps the blocks stay as they are; the condition saves their copies",
    ),
    Explained(
        "hf/decode/cache_slots.py",
        'self._ids, next_sequence_length=tokens.shape[1] if kwargs["use_cache"] else None, **kwargs',
        'self._ids, next_sequence_length=tokens.shape[1] if (kwargs["use_cache"]) and False else None, **kwargs',
        "with a cache the ids are only the new tokens",
    ),
]
