"""lm-format-enforcer: pure Python, character by character; regular expressions and choices.

Its parsers are values, one for each prefix, so rollback and fork keep a list. Its own walk over the tokens is not used:
it stores every prefix for ever, and turns an exception into "only EOS". It does not hold:

- JSON Schema: it writes what is no JSON (``1.e5``, ``{"a":1,}``), and drops keywords in silence;
- look-ahead and look-behind, grammars, structural tags;
- tokens that are not whole characters: it works on text, and never allows them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..constraints.values import Constraint
from ..errors import BackendError, CompileLimitExceeded
from ..options import LM_FORMAT_ENFORCER_MAX_CALLS
from ..regex import NOTHING, CharSet, Node, only, to_pattern
from .adapter import Adapter, Build, CompileResult
from .base import Engine

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

_THEIRS = ("interegular", "lmformatenforcer")
_CODE = re.compile(r"\\u\{(\w+)\}")  # in plain patterns


class LMFormatEnforcerBackend(Adapter):
    """The adapter; its tree over the vocabulary is built when first needed (seconds for 131k tokens)."""

    name = "lm_format_enforcer"
    title = "lm-format-enforcer"

    def __init__(self, vocabulary: Vocabulary):
        import lmformatenforcer

        super().__init__(vocabulary)
        self._lib = lmformatenforcer

    def _text(self, constraint: Constraint) -> Build:
        _, node = self._written(constraint, lambda node: (to_pattern(node), node))  # or it raises
        return lambda: self._built(node, constraint.kind)

    def _built(self, node: Node, kind: str) -> CompileResult:
        config = self._lib.CharacterLevelParserConfig()
        config.alphabet = "".join(self._tree.tokens_to_strs.values())
        # Every character of a class is kept there, so classes have only those that some token has.
        held = only(node, CharSet.of(config.alphabet))
        if held == NOTHING:
            raise self._unsupported(
                kind, "every text needs a character that no token holds whole; use the native engine"
            )
        pattern = _CODE.sub(lambda code: _quoted(int(code[1], 16)), to_pattern(held))
        with _bounded(LM_FORMAT_ENFORCER_MAX_CALLS):
            parser = self._lib.RegexParser(pattern, config)
        masks = _Masks(self.vocabulary, self._tree)
        # The size of the result is an estimate: parsers are small, masks are kept per state of a regex.
        return CompileResult(lambda: _Engine(masks, [parser]), 1_000_000)

    @cached_property
    def _tree(self) -> Any:
        from lmformatenforcer.tokenizerprefixtree import TokenizerPrefixTree

        tokens = []
        for token_id, data in enumerate(self.vocabulary.token_bytes):
            try:
                text = (data or b"").decode()
            except UnicodeDecodeError:
                continue
            if text:
                tokens.append((token_id, text, False))
        return TokenizerPrefixTree(tokens, use_bitmask=False, vocab_size=self.vocabulary.padded_size)


def _quoted(code: int) -> str:
    return chr(code) if chr(code).isalnum() or code >= 128 else f"\\x{code:02x}"


class _Masks:
    """The tokens that each parser allows; shared by the engines of one constraint, thread safe."""

    def __init__(self, vocabulary: Vocabulary, tree: Any):
        self.texts: dict[int, str] = tree.tokens_to_strs
        self._vocabulary, self._tree = vocabulary, tree
        self._kept: dict[Any, NDArray[np.int32]] = {}

    def of(self, parser: Any) -> NDArray[np.int32]:
        key = parser.cache_key()
        if key not in self._kept:
            try:
                self._kept[key] = self._walk(parser)
            except Exception as error:  # the library's own walk would log this and continue
                raise BackendError(f"lm-format-enforcer failed: {error!r}") from error
        return self._kept[key]

    def _walk(self, parser: Any) -> NDArray[np.int32]:
        tokens: list[int] = []
        todo = [(parser, self._tree.root)]
        while todo:
            here, node = todo.pop()
            tokens += node.tokens
            characters = node.children.keys() & set(here.get_allowed_characters())
            todo += [(here.add_character(character), node.children[character]) for character in characters]
        return self._vocabulary.bitmask_of(tokens)


class _Engine(Engine):
    def __init__(self, masks: _Masks, parsers: list[Any]):
        self._masks = masks
        self._parsers = parsers  # one per prefix

    def accept(self, token_id: int) -> bool:
        parser = self._parsers[-1]
        # The mask decides, so that the two always agree.
        if not self._masks.of(parser)[token_id // 32] >> (token_id % 32) & 1:
            return False
        for character in self._masks.texts[token_id]:
            parser = parser.add_character(character)
        self._parsers.append(parser)
        return True

    def rollback(self, num_tokens: int) -> None:
        del self._parsers[len(self._parsers) - num_tokens :]

    def fork(self) -> _Engine:
        return _Engine(self._masks, self._parsers.copy())

    def fill(self, bitmask: Tensor, row: int) -> None:
        words = self._masks.of(self._parsers[-1])
        bitmask[row].numpy()[: len(words)] = words

    def is_completed(self) -> bool:
        return bool(self._parsers[-1].can_end())


@contextmanager
def _bounded(max_calls: int) -> Iterator[None]:
    """Stop a pure Python library after a number of calls and returns: it has no limits of its own."""
    calls = 0
    before = sys.getprofile()

    def look(frame: FrameType, *_: Any) -> None:
        # Only in the library's own code: raised in a callback of the garbage collector, it would be swallowed.
        if not str(frame.f_globals.get("__name__")).startswith(_THEIRS):
            return
        nonlocal calls
        calls += 1
        try:
            if calls > max_calls:
                raise CompileLimitExceeded(
                    f"lm-format-enforcer did not finish in {max_calls} calls; make the constraint smaller"
                )
        except CompileLimitExceeded:
            sys.setprofile(before)
            raise

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)
