"""lm-format-enforcer: pure Python, character by character; regular expressions, choices and simple JSON.

Its parsers are values, one per prefix, so rollback and fork keep a list. Its own token walk is not used: it stores
every prefix for ever and turns an exception into "only EOS". Its JSON is looser than JSON (``1.e5``, ``{"a":1,}``,
``-0.5`` as an integer), which ``StrictJson`` corrects; other errors keep a keyword off the list of ``Subset``.
Tokens that are not whole characters are never allowed, because it works on text.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..automaton.limits import allowance
from ..constraints.values import Choice, Constraint, JsonSchema, Regex
from ..errors import BackendError, CompileLimitExceeded, Loss
from ..options import LM_FORMAT_ENFORCER_MAX_CALLS
from ..regex import UnsupportedRegex, literal, parse_fullmatch, to_pattern
from ..schema.prepare import prepare
from ..schema.subschemas import drop
from .adapter import Adapter, Build, Made
from .interegular_pattern import spelled_for_interegular
from .json_subset import Schema
from .lm_format_enforcer_json import UNESCAPED, WHITESPACE, StrictJson, Subset

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

_THEIRS = ("interegular", "lmformatenforcer")
_FREE_TEXT = "json_freetext"  # first item of the key by which it says that nearly every token fits
_FORCED_CHARACTERS = 256  # enough at a time; a forced loop would never end


class LMFormatEnforcerBackend(Adapter):
    """The adapter; its trees over the vocabulary are built when first needed (seconds for 131k tokens)."""

    name = "lm_format_enforcer"
    title = "lm-format-enforcer"

    def __init__(self, vocabulary: Vocabulary):
        import lmformatenforcer

        super().__init__(vocabulary)
        self._lib = lmformatenforcer

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        prepared, losses = prepare(constraint, alphabet=UNESCAPED)
        drop(prepared, losses)  # patterns that are not in plain words, which the library could not even parse
        subset = Subset(prepared, self._starts_with_space, self._alphabet)
        schema = subset.reduce()
        if not constraint.style.is_flexible:
            losses = [*losses, Loss("", "whitespace", "lm-format-enforcer writes white space as it likes")]
        return lambda: self._built(self._json_tree, self._json_parser(schema)), [*losses, *subset.losses]

    def _text(self, constraint: Constraint) -> Build:
        pattern = self._pattern(constraint)
        return lambda: self._built(self._text_tree, self._regex_parser(pattern, self._alphabet))

    def _built(self, tree: Any, parser: Any) -> Made:
        masks = _Masks(self.vocabulary, tree)
        # Its size is not known: parsers are small, masks are kept per state of a regex.
        return Made(lambda: _Engine(masks, [parser]), 1_000_000)

    def _regex_parser(self, plain: str, alphabet: str) -> Any:
        with _bounded(LM_FORMAT_ENFORCER_MAX_CALLS):
            return self._lib.RegexParser(spelled_for_interegular(plain, self._alphabet), self._config(alphabet))

    def _json_parser(self, schema: Schema) -> Any:
        try:
            with _bounded(LM_FORMAT_ENFORCER_MAX_CALLS):
                return StrictJson(self._lib.JsonSchemaParser(schema, self._config(self._unescaped)))
        except RecursionError as error:
            raise CompileLimitExceeded("lm-format-enforcer: the JSON Schema refers to itself without end") from error

    def _pattern(self, constraint: Constraint) -> str:
        if isinstance(constraint, Choice):
            return "|".join(f"(?:{literal(text)})" if text else "" for text in sorted(constraint.options, reverse=True))
        if not isinstance(constraint, Regex):
            raise self._unsupported(constraint.kind, "lm-format-enforcer has no such constraint")
        try:
            return to_pattern(parse_fullmatch(constraint.pattern))
        except UnsupportedRegex as error:
            raise self._unsupported("regex", str(error)) from None

    def _starts_with_space(self, pattern: str) -> bool:
        return bool(set(WHITESPACE) & set(self._regex_parser(pattern[1:-1], self._unescaped).get_allowed_characters()))

    @cached_property
    def _texts(self) -> list[tuple[int, str]]:
        texts = []
        for token_id, data in enumerate(self.vocabulary.token_bytes):
            try:
                text = (data or b"").decode()
            except UnicodeDecodeError:
                continue
            if text:
                texts.append((token_id, text))
        return texts

    @cached_property
    def _alphabet(self) -> str:
        return "".join(sorted(set("".join(text for _, text in self._texts))))

    @cached_property
    def _unescaped(self) -> str:
        """The characters that a JSON string may hold as they are."""
        return "".join(character for character in self._alphabet if character >= " ")

    def _config(self, alphabet: str) -> Any:
        """A configuration with these characters for "any"."""
        config = self._lib.CharacterLevelParserConfig()
        config.alphabet = alphabet
        return config

    @cached_property
    def _text_tree(self) -> Any:
        return self._tree(lambda text: True)

    @cached_property
    def _json_tree(self) -> Any:
        # Inside strings it allows tokens by list, and takes tabs and other raw control characters for fine.
        return self._tree(lambda text: all(character >= " " or character == "\n" for character in text))

    def _tree(self, keep: Callable[[str], bool]) -> Any:
        from lmformatenforcer.tokenizerprefixtree import TokenizerPrefixTree

        tokens = [(token_id, text, False) for token_id, text in self._texts if keep(text)]
        return TokenizerPrefixTree(tokens, use_bitmask=False, vocab_size=self.vocabulary.padded_size)


class _Masks:
    """The tokens each parser allows; shared by the engines of one constraint.

    Its JSON parsers of one schema share a pointer to "the active one", so only one thread may be inside.
    """

    def __init__(self, vocabulary: Vocabulary, tree: Any):
        self.vocabulary = vocabulary
        self.lock = threading.RLock()
        self.texts: dict[int, str] = tree.tokens_to_strs
        self.alphabet = frozenset("".join(self.texts.values()))
        self._tree = tree
        self._kept: dict[Any, NDArray[np.int32]] = {}

    def of(self, parser: Any) -> NDArray[np.int32]:
        with self.lock:
            key = parser.cache_key()
            if key is not None and key in self._kept:
                return self._kept[key]
            try:
                words = self._walk(parser)
            except Exception as error:  # its own walk would log this and continue
                raise BackendError(f"lm-format-enforcer failed: {error!r}") from error
            if key is not None:
                self._kept[key] = words
            return words

    def _walk(self, parser: Any) -> NDArray[np.int32]:
        tokens: list[int] = []
        free = parser.shortcut_key()
        is_free = isinstance(free, tuple) and free[0] == _FREE_TEXT
        todo = [(parser, self._tree.root)]
        while todo:
            here, node = todo.pop()
            tokens += node.tokens
            characters = node.children.keys() & set(here.get_allowed_characters())
            if is_free and node is self._tree.root:
                characters &= {'"'}  # what starts otherwise is on the list
            todo += [(here.add_character(character), node.children[character]) for character in characters]
        words = self.vocabulary.bitmask_of(tokens)
        return words | self._free_text(*free[1:]) if is_free else words

    def _free_text(self, length: int, shortest: int, longest: int) -> NDArray[np.int32]:
        lists = self._tree.json_freetext_tokens
        key = (
            min(lists.max_token_len, max(0, shortest - length)),  # characters before a quote may come
            min(lists.max_token_len, longest - length),
        )
        if key not in self._kept:
            self._kept[key] = self.vocabulary.bitmask_of(lists.lookup_allowed_tokens(*key).allowed_tokens)
        return self._kept[key]


class _Engine:
    def __init__(self, masks: _Masks, parsers: list[Any]):
        self._masks = masks
        self._parsers = parsers  # one per prefix

    def accept(self, token_id: int) -> bool:
        parser = self._parsers[-1]
        # The mask decides, so that the two always agree.
        if not self._masks.of(parser)[token_id // 32] >> (token_id % 32) & 1:
            return False
        with self._masks.lock:
            for character in self._masks.texts[token_id]:
                parser = parser.add_character(character)
        self._parsers.append(parser)
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        ahead = self.fork()
        for count, token_id in enumerate(token_ids):
            if not ahead.accept(token_id):
                return count
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        del self._parsers[len(self._parsers) - num_tokens :]

    def fork(self) -> _Engine:
        return _Engine(self._masks, list(self._parsers))

    def fill(self, bitmask: Tensor, row: int) -> None:
        words = self._masks.of(self._parsers[-1])
        bitmask[row].numpy()[: len(words)] = words

    def is_completed(self) -> bool:
        return bool(self._parsers[-1].can_end())

    def jump_forward_bytes(self) -> bytes:
        parser, forced = self._parsers[-1], ""
        with self._masks.lock:
            while not parser.can_end() and len(forced) < _FORCED_CHARACTERS:
                allowed = set(parser.get_allowed_characters())
                if len(allowed) != 1:
                    break
                character = allowed.pop()
                if character not in self._masks.alphabet:
                    break  # a dead end, and nothing to write it with
                forced += character
                parser = parser.add_character(character)
        return forced.encode()


@contextmanager
def _bounded(max_calls: int) -> Iterator[None]:
    """Stop a pure Python library after a number of calls and returns: it has no limits of its own."""
    calls, allowed = 0, allowance()
    before = sys.getprofile()

    def look(frame: FrameType, *_: Any) -> None:
        # Only in the library's own code: raised in a callback of the garbage collector, it would be swallowed.
        if not str(frame.f_globals.get("__name__")).startswith(_THEIRS):
            return
        nonlocal calls
        calls += 1
        if calls > max_calls:
            sys.setprofile(before)
            raise CompileLimitExceeded(
                f"lm-format-enforcer did not finish in {max_calls} calls; make the constraint smaller"
            )
        if allowed is not None and calls % 1024 == 0:
            try:
                allowed.check("lm-format-enforcer")
            except CompileLimitExceeded:
                sys.setprofile(before)
                raise

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)
