"""The texts by which a network finishes: of each frame one, or its beginning up to where another frame decides.

The text is a function of the frame, and what follows any of its bytes is the text of the frame there. So whoever counts
tokens along it counts no fewer than there are from the next frame on.

- A component without a register follows a shortest path, in bytes. A call weighs the shortest text of its callee.
- An object whose members come in any order writes the names that are missing, in one order, and closes.
- An item or a name that has begun, and would become one that is entered already, ends in the shortest other way.

White space that may stand between two tokens of JSON is marked as a choice, and so is where tokens are counted apart:
see token_counts.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar
from weakref import WeakMethod

import numpy as np

from ..errors import CompileLimitExceeded
from .exit_paths import ExitPaths, Leg
from .frame import NO_TEXT, Frame, Frames, Text, is_level
from .frame_exits import UNREACHABLE
from .network import Network
from .registers import NOTHING_ENTERED, Entered, ItemRule, LengthRule, NameRule
from .rtn import Mark
from .token_counts import CUT, SPACE, written_out
from .token_trie import TokenTrie
from .written_values import SPACE as SPACES

Value = TypeVar("Value")
_LAYOUT = frozenset(b" \t\n\r,:{}[]")
_MAX_TEXT = 1 << 18  # bytes of a text
_NO_TEXT_FOUND = "no shortest text was found"
_SMALL_ITEM = 8  # bytes of an item for which all ways are tried
_JOINT_FILL = 64  # characters of a long string that are counted together with what follows


class Own(NamedTuple):
    """The beginning of a frame's text; after ``text`` come, each between cuts, the members, the fill and the rest."""

    text: bytes  # the text up to where other frames decide
    onwards: Frames | None  # the frames that decide what follows; None is the frames below
    at: Text = NO_TEXT  # the text there; ignored after a cut
    members: tuple[bytes, ...] = ()  # texts of members
    fill: bytes = b""  # characters of a string
    rest: bytes = b""

    @property
    def has_cut(self) -> bool:
        """Whether parts are counted apart."""
        return bool(self.members or self.fill)

    @property
    def whole(self) -> bytes:
        """All that comes before what follows it."""
        parts = [self.text, *self.members, self.fill, self.rest] if self.fill else [self.text, *self.members, self.rest]
        return bytes((CUT,)).join(parts) if self.has_cut else self.text


class _NeedsText(Exception):
    def __init__(self, component: int):
        self.component = component


class ExitTexts(ExitPaths):
    """The texts of a network; thread safe."""

    def __init__(self, network: Network, tokens: TokenTrie):
        super().__init__(network, tokens)
        self._texts: dict[int, bytes] = {}
        self._failed: set[int] = set()  # components whose text was not found, or is too long
        self._after_name: dict[tuple[int, bytes], bytes] = {}
        self._spaced: dict[int, frozenset[int]] = {}
        network.search.shortcut = WeakMethod(self.can_end)

    # -- texts

    def _spelled(self, leg: Leg) -> bytes:
        return b"".join([part if isinstance(part, bytes) else self.text(part) for part in leg.parts])

    def _member(self, component: int, name: bytes) -> bytes:
        """The text after the quote of a name, up to after the quote of the next."""
        key = component, name
        known = self._after_name.get(key)
        if known is None:
            leg = self._leg(component, self._end_after(component, name), Mark.BEGIN)
            assert leg is not None
            known = self._after_name[key] = name[1:] + self._spelled(leg) + name[:1]
        return known

    def text(self, component: int) -> bytes:
        """The text of a component; raises _NeedsText where that of a callee is not known."""
        known = self._texts.get(component)
        if known is None:
            if component in self._failed:
                raise CompileLimitExceeded(_NO_TEXT_FOUND)
            raise _NeedsText(component)
        return known

    def of(self, frame: Frame, text: Text, left: int | None = None) -> Own:
        """How the text of a frame after ``text`` begins.

        ``text`` is at hand as far as something has begun. ``left`` is how many characters have to come of a string that
        is counted in the frame's component; None to count them.
        """
        return self._with_texts(lambda: self._begin(frame, text, left))

    def can_end(self, frame: Frame, owner: Frame, text: Text) -> bool:
        """True if an item that is open in ``owner`` can plainly become one that is not entered."""
        assert owner.entered is not None
        if not isinstance(self._network.rules[owner.component], ItemRule) or text.since(owner.entered.begin) is None:
            return False
        try:
            return self._with_texts(lambda: self._rest(frame, owner, text)[1]
                                    or self._with_another_byte(frame, owner, text, 2) is not None
                                    or bool(self._item(frame, owner, text, None).onwards))  # fmt: skip
        except CompileLimitExceeded:
            return False

    def later(self, owner: Frame) -> frozenset[bytes]:
        """The keys of all items or names in a register when the array or object ends, but for the open one."""
        return self._with_texts(lambda: self._later(owner))

    def _later(self, owner: Frame) -> frozenset[bytes]:
        assert owner.entered is not None
        place, entered, at = owner, owner.entered, Text(None, owner.entered.begin + 1)
        begun, is_item = owner, isinstance(self._network.rules[owner.component], ItemRule)
        while True:
            own = self._item(place, begun, at, None) if is_item and entered.has_begun else self._own(place, at, None)
            if not own.onwards:
                return entered.keys | owner.entered.keys
            place, at = own.onwards[0], own.at
            if is_level(place, owner) and place.entered is not None:
                begun, entered = place, place.entered

    def _with_texts(self, compute: Callable[[], Value]) -> Value:
        """The result of a function that needs the texts of components; unknown texts are made first."""
        making: list[int] = []
        while True:
            try:
                if not making:
                    return compute()
                self._texts[making[-1]] = self._whole(making[-1])
                making.pop()
            except _NeedsText as needs:
                assert needs.component not in making, "a text that contains itself"
                making.append(needs.component)

    def _whole(self, component: int) -> bytes:
        whole = b""
        frame, text = self._network.enter(component, ()), NO_TEXT
        while True:
            own = self._begin(frame, text, None)
            whole += own.whole
            if len(whole) > _MAX_TEXT or own.onwards == ():
                self._failed.add(component)
                reason = f"the shortest text has more than {_MAX_TEXT} bytes" if own.onwards != () else _NO_TEXT_FOUND
                raise CompileLimitExceeded(reason)
            if own.onwards is None:
                return whole
            frame, text = own.onwards[0], own.at

    def _items(self, frame: Frame) -> list[Frame]:
        """The frames in which items are open that have to be different, the innermost first."""
        return [place for place, _ in frame.opened() if isinstance(self._network.rules[place.component], ItemRule)]

    def _begin(self, frame: Frame, text: Text, left: int | None) -> Own:
        items = self._items(frame)
        return self._item(frame, items[-1], text, left) if items else self._own(frame, text, left)

    def _own(self, frame: Frame, text: Text, left: int | None) -> Own:
        rule, entered = self._network.rules.get(frame.component), frame.entered
        if frame.below:
            owner = frame.below[0]
            if owner.entered is not None and owner.entered.has_begun:
                if isinstance(self._network.rules[owner.component], NameRule):
                    return self._name_of_language(frame, owner, text)
        if isinstance(rule, NameRule):
            assert entered is not None
            if entered.has_begun:
                return self._name(frame, rule, entered, text)
            if rule.any_order:
                return self._members(frame, rule, entered, text)
        elif isinstance(rule, LengthRule) and entered is not None and entered.has_begun:
            return self._string(frame, rule, entered, text, left)
        return self._along(frame, text)

    def _along(self, frame: Frame, text: Text) -> Own:
        """Along the shortest path out of the component, up to where something begins or ends."""
        component, state = frame.component, frame.state
        rule, entered = self._network.rules.get(component), frame.entered
        exits, spaced = self.exits(component), self._states_before_space(component)
        out = bytearray()
        while True:
            if state in spaced:
                out.append(SPACE)
            if exits.move[state] < 0 or exits.size[state] >= UNREACHABLE:
                return Own(bytes(out), None if not exits.size[state] else ())
            byte, callee, state = exits.after(state)
            if byte is not None:
                out.append(byte)
                continue
            if callee >= 0:
                out += self.text(callee)
                continue
            if callee in (Mark.MORE, Mark.CLOSE):
                continue
            assert rule is not None
            assert entered is not None
            there = text.plus(written_out(bytes(out)))
            if callee == Mark.BEGIN:
                then = rule.begin(entered, there.end, required=False)
            else:
                then = rule.end(entered, there.since(entered.begin) if entered.has_begun else None)
            onwards = () if then is None else (self._network.frame(component, state, then, frame.below),)
            return Own(bytes(out), onwards, there)

    def _states_before_space(self, component: int) -> frozenset[int]:
        """States in which a space may come, and then the same as without it, of a component that writes no values."""
        known = self._spaced.get(component)
        if known is None:
            known, dfa = frozenset(), self._components[component].dfa
            used = (dfa.table[1:] != 0).any(0)[dfa.byte_class]
            if not self._components[component].callees and _LAYOUT.issuperset(np.flatnonzero(used).tolist()):
                exits, after = self.exits(component).rows[:2], dfa.table[:, dfa.byte_class[ord(" ")]]
                known = frozenset(np.flatnonzero((after > 0) & (exits == exits[:, after]).all(0)).tolist())
            self._spaced[component] = known
        return known

    # -- objects

    def _members(self, frame: Frame, rule: NameRule, entered: Entered, text: Text) -> Own:
        component, state, keys = frame.component, frame.state, entered.keys
        leg = self._leg(component, state, None)
        if leg is not None:
            return Own(self._spelled(leg), None)
        if rule.may_close(entered):
            leg = self._leg(component, state, Mark.CLOSE)
            if leg is not None:
                closed = next(after for mark, after in self._network.calls(component, leg.end) if mark == Mark.CLOSE)
                last = self._leg(component, closed, None)
                assert last is not None
                return Own(self._spelled(leg) + self._spelled(last), None)
        leg = self._leg(component, state, Mark.BEGIN)
        assert leg is not None
        begins = [(mark, after) for mark, after in self._network.calls(component, leg.end)
                  if mark in (Mark.BEGIN, Mark.BEGIN_REQUIRED)]  # fmt: skip
        begun = next(
            (after for mark, after in begins if rule.begin(entered, 0, required=mark == Mark.BEGIN_REQUIRED)), 0
        )
        names = sorted(rule.required - keys)
        while len(names) < max(1, rule.low - len(keys)):
            free = self._free(component, begun, keys.union(names))
            if free is None:
                return Own(self._spelled(leg), ())
            names.append(free)
        *most, last_name = names
        end = self._end_after(component, last_name)
        then = Entered(keys.union(names))
        onwards = (self._network.frame(component, end, then, frame.below),)
        before = self._spelled(leg)
        if most:
            members = tuple([self._member(component, name) for name in most])
            return Own(before + last_name[:1], onwards, members=members, rest=last_name[1:])
        return Own(before + last_name, onwards, text.plus(written_out(before) + last_name))

    def _name(self, frame: Frame, rule: NameRule, entered: Entered, text: Text) -> Own:
        """The rest of a name that has begun in the object's own component: a missing one, or else the cheapest."""
        component, keys = frame.component, entered.keys
        written = text.since(entered.begin)
        endings = self._names_from(component, frame.state)
        if written is None:
            written = b""
            keys = frozenset()
        wanted = rule.required - keys
        missing = next((ending for ending in endings if written + ending in wanted), None)
        if missing is not None:
            ending, end = missing, endings[missing]
        else:
            found: list[tuple[int, bytes, int]] = []
            for rest, after in endings.items():
                if written + rest not in keys:
                    found.append((len(rest) + self._value_size(component, after), rest, after))
            for callee, after in self._languages(component, frame.state):
                word = self._word(callee, self._network.start_of(callee), written, keys)
                if word is not None:
                    found.append((len(word) + self._value_size(component, after), word, after))
            if not found:
                return Own(b"", (), text)
            _, ending, end = min(found)
        return self._named(ending, written, frame, end, text)

    def _name_of_language(self, frame: Frame, owner: Frame, text: Text) -> Own:
        """The rest of a name that is not listed."""
        assert owner.entered is not None
        written = text.since(owner.entered.begin)
        keys = frozenset[bytes]() if written is None else owner.entered.keys
        word = self._word(frame.component, frame.state, written or b"", keys)
        end = self._end(owner.component, owner.state)
        if word is None or end is None:
            return Own(b"", (), text)
        return self._named(word, written, owner, end, text)

    def _named(self, ending: bytes, written: bytes | None, owner: Frame, end: int, text: Text) -> Own:
        rule = self._network.rules[owner.component]
        assert owner.entered is not None
        then = rule.end(owner.entered, None if written is None else written + ending)
        onwards = () if then is None else (self._network.frame(owner.component, end, then, owner.below),)
        return Own(ending, onwards, text.plus(ending))

    # -- strings that are counted

    def _string(self, frame: Frame, rule: LengthRule, entered: Entered, text: Text, left: int | None) -> Own:
        component, string = frame.component, rule.string
        written = text.since(entered.begin)
        if left is None:
            left = 0 if written is None else max(0, rule.low - string.characters(written))
        exits, state, out = self.exits(component), frame.state, bytearray()
        # The rest of an open character, and of a mark, comes first.
        while (end := self._end(component, state)) is None:
            left -= bool(string.begins[state])
            byte, _, state = exits.after(state)
            assert byte is not None
            out.append(byte)
        left = max(0, left)
        fill, state = self._fill(component, state) if left else (b"", state)
        end = self._end(component, state)
        assert end is not None
        onwards = (self._network.frame(component, end, NOTHING_ENTERED, frame.below),)
        at = text.plus(bytes(out) + fill * left)
        apart = left - _JOINT_FILL if left > 2 * _JOINT_FILL else 0
        if apart:
            return Own(bytes(out), onwards, at, fill=fill * apart, rest=fill * _JOINT_FILL)
        return Own(bytes(out) + fill * left, onwards, at)

    def _end(self, component: int, state: int) -> int | None:
        """The state after the end of what is open; None where it does not end."""
        return next((after for mark, after in self._network.calls(component, state) if mark == Mark.END), None)

    def _fill(self, component: int, state: int) -> tuple[bytes, int]:
        """A character that may come again and again, and the state after it."""
        dfa = self._components[component].dfa
        for byte in self._order:
            after = dfa.advance(state, bytes((byte,)))
            if after and self._end(component, after) and dfa.advance(after, bytes((byte,))) == after:
                return bytes((byte,)), after
        raise AssertionError("a string without letters")

    # -- items

    def _item(self, frame: Frame, owner: Frame, text: Text, left: int | None) -> Own:
        """The rest of an item, so that it is none that is entered; one byte of it where its way was searched."""
        place, at, parts = frame, text, list[bytes]()
        network = self._network
        innermost: Frame | None = None
        begun = place, at, 0  # the place where the innermost item continues, and the number of parts before it
        while True:
            last, innermost = innermost, self._items(place)[0]
            if last is None or last.entered != innermost.entered or not is_level(last, innermost):
                begun = place, at, len(parts)
            own = self._own(place, at, left)
            left = None
            parts.append(own.whole)
            if own.onwards is None:
                at, place = at.plus(written_out(parts[-1])), place.below[0]
                continue
            is_other = bool(own.onwards)
            if own.onwards and (ended := _ended(place, own.onwards[0], innermost)):
                is_at_hand = innermost.entered is not None and text.since(innermost.entered.begin) is not None
                is_other = not is_at_hand or network.rules[innermost.component].leaves_room(ended, network.search)
            if is_other and own.onwards:
                at = at.plus(written_out(parts[-1])) if own.has_cut else own.at
                if _ended(place, own.onwards[0], owner):
                    return Own(b"".join(parts), own.onwards, at)
            else:
                if is_level(innermost, owner):
                    return self._searched(frame, owner, text)
                place, at, count = begun
                own = self._searched(place, innermost, at)
                if not own.onwards:
                    return self._searched(frame, owner, text)
                parts[count:], at = [own.text], own.at
                begun = own.onwards[0], at, len(parts)
            place = own.onwards[0]

    def _searched(self, frame: Frame, owner: Frame, text: Text) -> Own:
        """A step of the way to another item, where that which the frame would have is entered already."""
        network, width = self._network, 1
        # Frames below the owner must not decide: texts of components are the same everywhere.
        for place in frame.stack():
            width += 0 if place.entered is None else len(place.entered.keys)
            if is_level(place, owner):
                break
        own = self._with_another_byte(frame, owner, text, width)
        if own is not None:
            return own
        path = network.search.another(frame, owner, text, width)
        if path is None:
            return Own(b"", (), text)
        step, at = network.read((frame,), path[:1], text), text.plus(path[:1])
        # The first one continues as was found.
        return Own(path[:1], tuple(sorted(step, key=lambda after: not network.read((after,), path[1:], at))), at)

    def _with_another_byte(self, frame: Frame, owner: Frame, text: Text, width: int) -> Own | None:
        """The text of a large item with one other byte, and what follows from that; None if that is not enough.

        All ways to such an item are too many. Of the bytes the last one is taken that makes it hardly longer.
        """
        network = self._network
        rest, _ = self._rest(frame, owner, text)
        if len(rest) <= _SMALL_ITEM:
            return None
        reached = [[frame]]
        for i in range(len(rest)):
            everywhere = network.everywhere(reached[i], text.plus(rest[:i]), owner)
            reached[i] = [place for place in everywhere if place.is_inside(owner)]
            reached.append([*network.moved(reached[i], rest[i])])
        best: tuple[int, bytes, Frame] | None = None
        for i in range(len(rest) - 1, -1, -1):
            others = {
                byte: None
                for place in reached[i]
                for byte, _ in self._bytes_by_target(place.component, place.state, width + 2)
            }
            for byte in others:
                there = text.plus(rest[:i] + bytes((byte,)))
                for place in network.moved(reached[i], byte) if byte != rest[i] and byte not in SPACES else ():
                    further, is_other = self._rest(place, owner, there)
                    size = i + 1 + len(further)
                    if is_other and (best is None or size < best[0]):
                        best = size, rest[:i] + bytes((byte,)), place
            if best is not None and best[0] <= len(rest) + 1:
                break
        return None if best is None else Own(best[1], (best[2],), text.plus(best[1]))

    def _rest(self, place: Frame, owner: Frame, text: Text) -> tuple[bytes, bool]:
        """The usual rest of an item, and whether it is another one than those that are entered."""
        rest = b""
        while True:
            own = self._own(place, text.plus(rest), None)
            rest += written_out(own.whole)
            if own.onwards == ():
                return rest, False
            ended = None if own.onwards is None else _ended(place, own.onwards[0], owner)
            if ended:
                return rest, self._network.rules[owner.component].leaves_room(ended, self._network.search)
            place = place.below[0] if own.onwards is None else own.onwards[0]


def _ended(place: Frame, after: Frame, owner: Frame) -> Entered | None:
    """The register after the item that is open in the owner, if it ends between two frames."""
    is_end = is_level(place, owner) and is_level(after, owner) and after.entered and not after.entered.has_begun
    return after.entered if is_end else None
