"""One character of a set, as bytes: a small automaton with shared prefixes and suffixes."""

from __future__ import annotations

from functools import lru_cache

from ..regex.charset import CharSet, Range

START, END = 0, 1
# First and last code point, byte above the digits of the first byte, continuation bytes (six bits each) after it.
_LENGTHS = ((0x80, 0x7FF, 0xC0, 1), (0x800, 0xFFFF, 0xE0, 2), (0x10000, 0x10FFFF, 0xF0, 3))
_ASCII = 0x7F
_CONTINUATION = 0x80
Step = tuple[int, int, int, int]  # source, first byte, last byte, target


def utf8_steps(charset: CharSet) -> tuple[int, tuple[Step, ...]]:
    """The characters of the set in UTF-8.

    Returns:
        How many states, START and END among them, and the steps between them.
    """
    ascii_steps = [(START, first, min(last, _ASCII), END) for first, last in charset.ranges if first <= _ASCII]
    states, steps = _others(tuple(each for each in charset.ranges if each[1] > _ASCII))
    return states, (*ascii_steps, *steps)


@lru_cache(maxsize=1024)
def _others(ranges: tuple[Range, ...]) -> tuple[int, tuple[Step, ...]]:
    r"""As ``utf8_steps``, without ASCII: ``\w`` and ``[\w.-]`` have the same letters, which take milliseconds."""
    steps: list[Step] = []
    states: dict[tuple[tuple[Range, ...], int], int] = {}
    for low, high, lead, count in _LENGTHS:
        parts = tuple((max(a, low), min(b, high)) for a, b in ranges if a <= high and b >= low)
        _digits(START, parts, count, lead, states, steps)
    return len(states) + 2, tuple(steps)


def _digits(
    source: int,
    ranges: tuple[Range, ...],
    count: int,
    base: int,
    states: dict[tuple[tuple[Range, ...], int], int],
    steps: list[Step],
) -> None:
    """Steps for the first digit of these numbers; digits with the same continuation share a state."""
    if not count:
        steps += [(source, base + first, base + last, END) for first, last in ranges]
        return
    unit = 64**count
    split: dict[int, list[Range]] = {}
    for first, last in ranges:
        for digit in range(first // unit, last // unit + 1):
            low = digit * unit
            split.setdefault(digit, []).append((max(first, low) - low, min(last, low + unit - 1) - low))
    run: tuple[int, int, tuple[Range, ...]] | None = None
    for digit in sorted(split):
        rest = tuple(split[digit])
        if run is not None and run[1] == digit - 1 and run[2] == rest:
            run = run[0], digit, rest
        else:
            if run is not None:
                _step(source, run, count, base, states, steps)
            run = digit, digit, rest
    if run is not None:
        _step(source, run, count, base, states, steps)


def _step(
    source: int,
    run: tuple[int, int, tuple[Range, ...]],
    count: int,
    base: int,
    states: dict[tuple[tuple[Range, ...], int], int],
    steps: list[Step],
) -> None:
    first, last, rest = run
    target = states.get((rest, count))
    if target is None:
        target = states[rest, count] = len(states) + 2  # after START and END
        _digits(target, rest, count - 1, _CONTINUATION, states, steps)
    steps.append((source, base + first, base + last, target))
