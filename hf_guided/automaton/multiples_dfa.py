"""Multiples of a number, recognized by the remainder of the digits so far; no list of endings can replace this."""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from .byte_dfa import ByteDfa, trimmed
from .limits import WorkMeter


def multiples_dfa(factor: Decimal, meter: WorkMeter) -> ByteDfa:
    """Decimals, with or without a sign and a point, that are a multiple of ``factor``.

    Leading zeros are accepted too; another automaton decides how numbers are written.

    Args:
        factor: positive.
        meter: the limits of the whole compile; there is a state for each remainder and each decimal place.
    """
    whole, _, fraction = f"{factor:f}".partition(".")
    fraction = fraction.rstrip("0")
    places, modulus = len(fraction), int(whole + fraction)  # the factor in units of 10 ** -places
    meter.check_states(modulus * (places + 2))
    meter.spend_cells(4 * 13 * modulus * (places + 2))  # the table is written, and once read
    # States: dead, start, after the sign, trailing zeros; then for each remainder one state for the digits before the
    # point, and one for each number of digits after it, from none to all places.
    start, signed, zeros, before = range(1, 5)
    table = np.zeros((before + modulus * (places + 2), 13), np.int64)  # ten digits, the sign, the point, all others
    accepting = np.zeros(len(table), np.bool_)
    remainders = np.arange(modulus)
    following = (remainders[:, None] * 10 + np.arange(10)) % modulus  # (remainders, digits)
    table[start, :10] = table[signed, :10] = before + following[0]
    table[start, 10] = signed
    table[before : before + modulus, :10] = before + following
    table[before : before + modulus, 11] = before + modulus + remainders
    accepting[before : before + modulus] = remainders * pow(10, places, modulus) % modulus == 0
    for digits in range(places + 1):
        low = before + modulus * (1 + digits)
        if digits < places:
            table[low : low + modulus, :10] = low + modulus + following
        if digits:  # not directly after the point
            accepting[low : low + modulus] = remainders * pow(10, places - digits, modulus) % modulus == 0
    table[[low, zeros], 0] = zeros  # all places are there and nothing remains
    accepting[zeros] = True
    byte_class = np.full(256, 12)
    byte_class[[*b"0123456789-."]] = np.arange(12)
    return trimmed(table, byte_class, accepting, start, meter)
