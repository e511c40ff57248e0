"""One row's position in a constraint: an engine, and the ending, which is the same for all engines.

- A stop token is allowed exactly where the text so far is complete, and nothing but stop tokens after it.
- Special tokens, tokens without bytes and the logits' padding are never allowed.
- A refused move changes nothing; every accepted token, the stop token included, counts one for ``rollback``.

So a library's own idea of EOS (counted or not in a rollback, masked or not after the end) cannot leak through.
A matcher is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import BitmaskShapeError, CompileLimitExceeded, InvalidArgument, reading, shown

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary
    from .base import CompiledConstraint, Engine, Stepper

_BITS = (1 << np.arange(32, dtype=np.uint32)).view(np.int32)  # the bits of one word of a bitmask


class Tokens:
    """The tokens that are text, and those that end it; the same for a matcher and its forks.

    Stop tokens never count as text: not even a line break that is declared a stop token.
    """

    def __init__(self, vocabulary: Vocabulary, stop_token_ids: tuple[int, ...]):
        self.vocabulary = vocabulary
        self.stop_token_ids = stop_token_ids
        self.text_words = vocabulary.text_words.copy()  # (words,) int32
        stops: dict[int, np.int32] = {}
        for token_id in stop_token_ids:
            index, bit = token_id // 32, _BITS[token_id % 32]
            stops[index] = stops.get(index, np.int32(0)) | bit
            self.text_words[index] &= ~bit
        self.stop_words = [*stops.items()]
        self.stops_are_text = any(map(vocabulary.is_text, stop_token_ids))


class Narrowed(NamedTuple):
    """The masks of a position at which a limit forbids tokens that the format allows, or may do so.

    Args:
        by_format: (words,) int32, the tokens that the format allows.
        by_both: (words,) int32, those among them that the limits allow too; the same array where they forbid none.
        thinking: whether the limit is that of the thinking, which has to end now; else it is the token limit.
    """

    by_format: NDArray[np.int32]
    by_both: NDArray[np.int32]
    thinking: bool = False

    @property
    def narrows(self) -> bool:
        """Whether a limit forbids a token here."""
        return self.by_format is not self.by_both


def _as_int(name: str, value: Any) -> int:
    """An int from a caller: of Python, numpy, or a tensor of one element."""
    try:
        return int(index(value))
    except Exception:
        raise InvalidArgument(f"{name}: expected an int, got {shown(value)}", name=name) from None


class Matcher:
    """One row's position in the grammar, ending included. Made by ``CompiledConstraint.matcher`` and ``fork``.

    Every method that calls the engine raises BackendError if the engine fails; see ``Engine``.
    """

    def __init__(self, compiled: CompiledConstraint, tokens: Tokens, engine: Engine):
        self.compiled = compiled
        self.stop_token_ids = tokens.stop_token_ids
        self._tokens = tokens
        self._engine: Any = engine  # ``compiled`` says which of the protocols of base.py the engine has
        self._copies_masks = compiled.keeps_masks and not tokens.stops_are_text
        self._accepted = 0  # text tokens the engine has taken
        self._stops = 0  # stop tokens after them
        self._bitmask: Tensor | None = None  # the one filled last, and its numpy view
        self._lines: NDArray[np.int32] = np.empty((0, 0), np.int32)
        self._taken: tuple[int, Sequence[int]] = 0, ()  # its address and shape then

    @property
    def engine(self) -> Engine:
        """The engine; read only, because the matcher handles the ending."""
        engine: Engine = self._engine
        return engine

    @property
    def num_accepted(self) -> int:
        """Tokens accepted so far, the stop token included: the most ``rollback`` can take back."""
        return self._accepted + self._stops

    def accept_token(self, token_id: int) -> bool:
        """Advance by one token.

        Args:
            token_id: any int; one outside the vocabulary is refused.

        Returns:
            True if accepted. On False the matcher is as it was.
        """
        if type(token_id) is not int:
            token_id = _as_int("token_id", token_id)
        if token_id in self.stop_token_ids:  # also again: rows are padded with it while others continue
            allowed = self.is_completed()
            self._stops += allowed
            return allowed
        texts = self._tokens.vocabulary.token_bytes
        if self._stops or not 0 <= token_id < len(texts) or texts[token_id] is None:
            return False
        accepted: bool = self._ask(self._engine.accept, token_id)
        self._accepted += accepted
        return accepted

    def took_one(self) -> None:
        """Note a text token that the engine has taken already."""
        self._accepted += 1

    def validate_tokens(self, token_ids: Sequence[int]) -> int:
        """The length of the longest acceptable prefix of these tokens; never advances."""
        if type(token_ids) not in (list, tuple, range):
            with reading("token_ids"):
                token_ids = [_as_int("token_ids", token_id) for token_id in token_ids]
        text = 0
        if not self._stops:
            text = next((i for i, token_id in enumerate(token_ids) if not self._is_text(token_id)), len(token_ids))
            valid: int = self._ask(self._engine.validate, token_ids[:text])
            if valid < text:
                return valid
        stops = next(
            (i for i, token_id in enumerate(token_ids[text:]) if token_id not in self.stop_token_ids),
            len(token_ids) - text,
        )
        if not stops:
            return text
        ahead = self.fork() if text else self
        for token_id in token_ids[:text]:
            ahead.accept_token(token_id)
        return text + stops if ahead.is_completed() else text

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the engine; its exceptions become errors of this package."""
        try:
            return call(*arguments)
        except Exception as error:
            self.compiled.fail(error)

    def _is_text(self, token_id: int) -> bool:
        return token_id not in self.stop_token_ids and self.compiled.vocabulary.is_text(token_id)

    def rollback(self, num_tokens: int) -> None:
        """Take back the last accepted tokens.

        Args:
            num_tokens: 0 to ``num_accepted``.

        Raises:
            ValueError: more than were accepted; nothing is taken back.
        """
        num_tokens = _as_int("num_tokens", num_tokens)
        if not 0 <= num_tokens <= self.num_accepted:
            raise ValueError(f"cannot roll back {num_tokens} tokens, {self.num_accepted} were accepted")
        stops = min(num_tokens, self._stops)
        self._stops -= stops
        num_tokens -= stops
        if num_tokens:
            self._ask(self._engine.rollback, num_tokens)
            self._accepted -= num_tokens

    def fork(self) -> Matcher:
        """An independent matcher at the same position, history included."""
        twin = Matcher(self.compiled, self._tokens, self._ask(self._engine.fork))
        twin._accepted, twin._stops = self._accepted, self._stops
        return twin

    def reset(self) -> None:
        """Back to the start of the grammar."""
        self._engine = self.compiled.start()
        self._accepted, self._stops = 0, 0

    def fill_next_token_bitmask(self, bitmask: Tensor, row: int = 0, *, tokens_left: int | None = None) -> bool:
        """Write which tokens may come next.

        Args:
            bitmask: (rows, >= ceil(padded vocab / 32)) int32 on CPU, contiguous; row ``row`` is overwritten.
            row: which row.
            tokens_left: tokens that may still come, the next and the stop token counted: those after which the text
                could not be finished are forbidden. Without effect where ``min_tokens_to_finish`` is None, or more
                than is left.

        Returns:
            True: the row forbids something and has to be applied. (A row that forbids nothing has no matcher.)

        Raises:
            BitmaskShapeError: the bitmask has another shape or device, or no such row.
        """
        self._take(bitmask)
        if type(row) is not int or not 0 <= row < len(self._lines):
            raise BitmaskShapeError(f"expected a row of the bitmask, which has {len(bitmask)}, got {shown(row)}")
        if tokens_left is not None and type(tokens_left) is not int:
            raise InvalidArgument(f"tokens_left: expected an int or None, got {shown(tokens_left)}", name="tokens_left")
        self._fill(bitmask, row, tokens_left)
        return True

    def fill_row(self, bitmask: Tensor, row: int, tokens_left: int | None) -> NDArray[np.int32]:
        """Do ``fill_next_token_bitmask``, and return the row of the bitmask, (words,) int32, not a copy."""
        self._take(bitmask)
        return self._fill(bitmask, row, tokens_left)

    def narrowed(
        self,
        tokens_left: int | None,
        words: NDArray[np.int32] | None = None,
        *,
        is_ended: bool = False,
        always: bool = False,
    ) -> Narrowed | None:
        """How the limits narrow the mask here; None if they forbid no token, or the engine cannot tell.

        Args:
            tokens_left: the token limit, see ``fill_next_token_bitmask``; None without one.
            words: the mask within the limits, (words,) int32, if it has been filled; copied.
            is_ended: whether that mask could not be filled, or allowed no token.
            always: return the masks also where the limits forbid no token.
        """
        if self._stops:
            return None
        from ..vocabulary.bitmask import allocate_bitmask

        try:
            thinking = None if is_ended else self._unlimited_thinking(tokens_left)
            near = thinking is not None or self._is_near_limit(tokens_left, is_ended)
            if not near and (is_ended or not always):
                return None
            if not near and words is not None:
                return Narrowed(same := words.copy(), same)
            twin = self.fork()  # an engine that has reached its limit of work cannot be used further
            bitmask = allocate_bitmask(2, self.compiled.vocabulary.padded_size)
            by_both = bitmask[0].numpy()  # allows no token
            try:
                by_both = twin.fill_row(bitmask, 0, tokens_left) if words is None or is_ended else words.copy()
            except CompileLimitExceeded:  # the work of counting the tokens to the end is limited, too
                if not is_ended:
                    raise
                twin = self.fork()
                by_both[:] = 0
            by_format = by_both
            if thinking is not None:
                by_format = bitmask.numpy()[1]
                by_format[:] = 0
                by_format[: len(thinking)] = thinking
            elif near and (words is not None or twin._is_near_limit(tokens_left)):  # the mask may have shown more
                by_format = twin.fill_row(bitmask, 1, None)
        except Exception:  # the row itself meets the error where its mask needs this work
            return None
        if (by_format & ~by_both).any():
            return Narrowed(by_format, by_both, thinking is not None)
        return Narrowed(by_both, by_both) if always else None

    def _is_near_limit(self, tokens_left: int | None, is_ended: bool = False) -> bool:
        if tokens_left is None or not self.compiled.keeps_budget:
            return False
        return is_ended or bool(self._engine.is_near_limit(tokens_left))

    def thinking_is_limited(self, tokens_left: int | None) -> bool:
        """Whether the row thinks, and a limit forbids tokens that would continue the thinking."""
        return self._ask(self._unlimited_thinking, tokens_left) is not None

    def _unlimited_thinking(self, tokens_left: int | None) -> NDArray[np.int32] | None:
        """See ``BudgetedEngine``."""
        words: NDArray[np.int32] | None = None
        if self.compiled.keeps_budget:
            words = self._engine.unlimited_thinking(tokens_left)
        return words

    @property
    def stepper(self) -> Stepper | None:
        """See ``Engine.stepper``; None too where its masks have no keys."""
        return self._engine.stepper if self._copies_masks else None

    def mask_key(self, tokens_left: int | None = None) -> Hashable | None:
        """The key of the mask: see ``MaskedEngine.mask_key``; None too where the engine keeps none.

        Matchers with other stop tokens may have the same. ``tokens_left`` is as in ``fill_next_token_bitmask``.
        """
        if self._stops or not self._copies_masks:
            return None
        key: Hashable | None = self._ask(self._engine.mask_key, tokens_left)
        return key

    def _fill(self, bitmask: Tensor, row: int, tokens_left: int | None) -> NDArray[np.int32]:
        words: NDArray[np.int32] = self._lines[row]
        tokens = self._tokens
        try:
            may_stop = True
            if self._stops:
                words[:] = 0
            elif self._copies_masks:
                may_stop = self._engine.write_mask(words, tokens_left)
            else:
                covered = len(tokens.text_words)
                if self.compiled.keeps_budget:
                    self._engine.fill(bitmask, row, tokens_left)
                else:
                    self._engine.fill(bitmask, row)
                words[:covered] &= tokens.text_words
                words[covered:] = 0
                may_stop = self._engine.is_completed()
        except Exception as error:
            self.compiled.fail(error)
        if may_stop:
            for index, word in tokens.stop_words:
                words[index] |= word
        return words

    def _take(self, bitmask: Tensor) -> None:
        """Check a bitmask, and keep its numpy view: both take microseconds, in calls that may take no more.

        Not again where it is as it was: one in shared memory, for example, is the same tensor at another address.
        """
        known = self._bitmask
        if known is not None and bitmask is known and (known.data_ptr(), known.shape) == self._taken:
            return
        from ..vocabulary.bitmask import check_width  # torch, which compiling does without

        check_width(bitmask, self.compiled.vocabulary.padded_size)
        if bitmask.device.type != "cpu":
            raise BitmaskShapeError(f"expected a bitmask on the CPU, got one on {bitmask.device}")
        self._bitmask, self._lines = bitmask, bitmask.numpy()
        self._taken = bitmask.data_ptr(), bitmask.shape

    def min_tokens_to_finish(self) -> int | None:
        """How many tokens, the stop token counted, are enough to finish; None if this engine does not know."""
        if self._stops:
            return 0
        needed: int | None = self._ask(self._engine.min_tokens_to_finish) if self.compiled.keeps_budget else None
        return needed

    def can_finish_in(self, tokens_left: int) -> bool | None:
        """Whether ``min_tokens_to_finish`` is at most this; much quicker where many tokens are left."""
        if self._stops:
            return True
        can: bool | None = self._ask(self._engine.can_finish_in, tokens_left) if self.compiled.keeps_budget else None
        return can

    def jump_forward_bytes(self) -> bytes:
        """The forced next bytes; empty where the text may stop or has stopped."""
        forced: bytes = b"" if self._stops else self._ask(self._engine.jump_forward_bytes)
        return forced

    def is_completed(self) -> bool:
        """Whether the text so far is complete (the row may stop here, or has stopped)."""
        return self._stops > 0 or bool(self._ask(self._engine.is_completed))

    def is_terminated(self) -> bool:
        """Whether a stop token was accepted."""
        return self._stops > 0
