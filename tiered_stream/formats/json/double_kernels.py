"""Conversion of a decimal number to the nearest double or float, in compiled code.

The algorithm is by Eisel and Lemire ("Number Parsing at a Gigabyte per Second", 2021), as in fast_float. The digits are
multiplied by 128 bits of a power of five. In all but very few cases the product shows how to round.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.records.compiled import Int, kernel
from tiered_stream.records.intrinsics import leading_zeros, multiply_high

_LOWEST, _HIGHEST = -342, 308


def _power_of_five(exponent: int) -> int:
    """Return the highest 128 bits of `5**exponent`. For a negative exponent, these bits are rounded up."""
    power: int = 5 ** abs(exponent)
    if exponent < 0:
        bits = (power - 1).bit_length()
        power = (1 << (bits + 127 if exponent >= -27 else 2 * bits + 128)) // power + 1
    shift = power.bit_length() - 128
    return power >> shift if shift > 0 else power << -shift


_MASK = (1 << 64) - 1
_FIVES = np.array(
    [[power >> 64, power & _MASK] for power in map(_power_of_five, range(_LOWEST, _HIGHEST + 1))], np.uint64
)
_TENS = np.array([10.0**power for power in range(23)])
_ONE, _NINE = np.uint64(1), np.uint64(9)


@kernel
def nearest_double(digits: Int, exponent: Int) -> Any:
    """Return the double nearest to `digits * 10**exponent`, and True; or 0.0 and False if the double is not certain.

    `digits` is not negative.
    """
    if digits == 0:
        return 0.0, True
    if digits <= 1 << 53 and -22 <= exponent <= 22:
        # Both factors are exact, so the one rounding of the result is correct.
        value = np.float64(digits)
        return value / _TENS[-exponent] if exponent < 0 else value * _TENS[exponent], True
    if exponent < _LOWEST or exponent > _HIGHEST:
        return 0.0, False
    return _rounded(np.uint64(digits), exponent)


@kernel
def _rounded(digits: Any, exponent: Int) -> Any:
    zeros = leading_zeros(digits)
    digits <<= zeros
    five = exponent - _LOWEST
    upper, lower = multiply_high(digits, _FIVES[five, 0]), digits * _FIVES[five, 0]
    if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
        more = multiply_high(digits, _FIVES[five, 1])
        lower += more
        if more > lower:
            upper += _ONE
    if lower == np.uint64(0xFFFFFFFFFFFFFFFF) and not -27 <= exponent <= 55:
        return 0.0, False
    top = upper >> np.uint64(63)
    mantissa = upper >> (top + _NINE)
    power = ((217706 * exponent) >> 16) + 63 + np.int64(top) - np.int64(zeros) + 1023
    if power <= 0 or power >= 2046:
        return 0.0, False  # subnormal, or perhaps too large
    is_between = lower <= _ONE and -4 <= exponent <= 23 and mantissa << (top + _NINE) == upper
    if is_between and mantissa & np.uint64(3) == _ONE:
        mantissa &= ~_ONE  # two doubles are equally near: take the even one
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    # A mantissa that was rounded up to 2^53 carries into the exponent, as it should.
    bits = (np.uint64(power - 1) << np.uint64(52)) + mantissa
    return np.uint64(bits).view(np.float64), True


@kernel
def nearest_float(digits: Int, exponent: Int) -> Any:
    """Return the float nearest to `digits * 10**exponent`, as a double, and whether the float is certain.

    `digits` is not negative. A float that is not certain may be wrong.
    """
    value, certain = nearest_double(digits, exponent)
    # To round twice, first to a double, gives a wrong float only if the double lies exactly between two floats.
    between = np.float64(value).view(np.uint64) & np.uint64(0x1FFFFFFF) == np.uint64(0x10000000)
    is_normal = digits == 0 or 1e-37 < value < 3e38
    return np.float64(np.float32(value)), certain and is_normal and not between
