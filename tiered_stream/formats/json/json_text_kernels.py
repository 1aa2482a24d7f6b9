"""Kernels (functions that numba compiles) that read strings, numbers, dates and timestamps in JSON, or skip values.

A function takes the bytes `data`, a position `at`, and the end `stop` of the text. Most functions return the position
after the text that they have read, or DOUBTFUL (-1) if the meaning of the text is not certain. `exact_json.py` then
decodes the whole document.

A decimal number becomes the nearest double by the algorithm of Eisel and Lemire ("Number Parsing at a Gigabyte per
Second", 2021), as in fast_float. The digits are multiplied by 128 bits of a power of five. In all but very few cases
the product shows how to round.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.formats.columns.column_kernels import character_end
from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.intrinsics import (
    leading_zeros,
    load_uint32_le,
    load_uint64_le,
    multiply_high,
    trailing_zeros,
)

_LOWEST, _HIGHEST = -342, 308


def _power_of_five(exponent: int) -> int:
    """Return the highest 128 bits of `5**exponent` as an integer. For a negative exponent, they are rounded up."""
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
    """Return the float nearest to `digits * 10**exponent`, as a double, and whether it is certain to be the nearest.

    `digits` is not negative.
    """
    value, certain = nearest_double(digits, exponent)
    # To round twice, first to a double, gives a wrong float only if the double lies exactly between two floats.
    between = np.float64(value).view(np.uint64) & np.uint64(0x1FFFFFFF) == np.uint64(0x10000000)
    is_normal = digits == 0 or 1e-37 < value < 3e38
    return np.float64(np.float32(value)), certain and is_normal and not between


DOUBTFUL = -1

MAX_NESTING = 64
"""Maximum levels of nesting in a document that kernels read. Python decodes deeper documents."""

_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES = _ONES * np.uint64(0x22), _ONES * np.uint64(0x5C)
_BLANKS = _ONES * np.uint64(0x20)
_TRUE, _NULL, _FALS = (np.uint64(int.from_bytes(text, "little")) for text in (b"true", b"null", b"fals"))


@inlined
def skip_blanks(data: Any, at: Int, stop: Int) -> Int:
    while at < stop and data[at] <= 32 and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@inlined
def string_end(data: Any, at: Int, stop: Int) -> Int:
    """Return the position of a JSON string's closing quote; `at` is the position after the opening quote.

    Returns DOUBTFUL if the string has an escape, a control character or invalid UTF-8, or does not end before `stop`.
    """
    loadable = data.shape[0] - 8
    while at < stop:
        if at <= loadable:
            word = load_uint64_le(data, at)
            quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
            # Only the lowest set bit is reliable, because a borrow may set bits above it.
            marks = (quotes - _ONES) & ~quotes | (backslashes - _ONES) & ~backslashes | (word - _BLANKS) & ~word | word
            marks &= _HIGHS
            if marks == 0:
                at += 8
                continue
            at += np.int64(trailing_zeros(marks) >> np.uint64(3))
            if at >= stop:
                break
        byte = data[at]
        if byte == 34:
            return at
        if byte == 92 or byte < 32:
            break
        at = at + 1 if byte < 128 else character_end(data, at, stop)
        if at < 0:
            break
    return np.int64(DOUBTFUL)


@inlined
def is_text(data: Any, at: Int, stop: Int, text: Any, text_at: Int, size: Int) -> Any:
    """Return whether `data` has, from the position `at` to `stop`, first the `size` bytes of `text` at `text_at`.

    In `text`, at least 8 more bytes must follow the compared bytes.
    """
    if size > stop - at:
        return False
    while size >= 8:
        if load_uint64_le(data, at) != load_uint64_le(text, text_at):
            return False
        at, text_at, size = at + 8, text_at + 8, size - 8
    if at + 8 <= data.shape[0]:
        different = load_uint64_le(data, at) ^ load_uint64_le(text, text_at)
        return different & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)) == 0
    while size > 0 and data[at] == text[text_at]:
        at, text_at, size = at + 1, text_at + 1, size - 1
    return size == 0


@inlined
def literal_end(data: Any, at: Int, stop: Int) -> Int:
    """Return the position after the `true`, `false` or `null` at `data[at]`, or DOUBTFUL if none of them is there."""
    if stop - at < 4:
        return np.int64(DOUBTFUL)
    word = load_uint32_le(data, at)
    if word in (_TRUE, _NULL):
        return at + 4
    return at + 5 if word == _FALS and stop - at > 4 and data[at + 4] == 101 else np.int64(DOUBTFUL)


@inlined
def _digits(data: Any, at: Int, stop: Int, value: Int) -> Any:
    """Read the decimal digits at `data[at]`; return `value` with these digits appended, and the position after them.

    There may be no digit. The returned number may overflow an int64.
    """
    while at < stop:
        digit = np.int64(data[at]) - 48
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        at += 1
    return value, at


@inlined
def read_number(data: Any, at: Int, stop: Int) -> Any:
    """Read the JSON number at `data[at]`; return (digits, exponent, is negative, is integer, next position).

    The number's absolute value is `digits * 10**exponent`. The position is DOUBTFUL if the number is malformed or has
    more than 18 digits.
    """
    negative = data[at] == 45
    at += negative
    begin = at
    mantissa, at = _digits(data, at, stop, np.int64(0))
    count, exponent, integer = at - begin, np.int64(0), True
    if count == 0 or (count > 1 and data[begin] == 48):
        return mantissa, exponent, negative, integer, np.int64(DOUBTFUL)
    if at < stop and data[at] == 46:
        mantissa, after = _digits(data, at + 1, stop, mantissa)
        exponent, integer = at + 1 - after, False
        count, at = count - exponent, after
        if exponent == 0:
            return mantissa, exponent, negative, integer, np.int64(DOUBTFUL)
    if at < stop and (data[at] == 101 or data[at] == 69):
        at, integer = at + 1, False
        minus = at < stop and data[at] == 45
        at += minus or (at < stop and data[at] == 43)
        power, after = _digits(data, at, stop, np.int64(0))
        if after == at or after - at > 9:
            return mantissa, exponent, negative, integer, np.int64(DOUBTFUL)
        exponent, at = exponent - power if minus else exponent + power, after
    if count > 18:
        while begin < at and (data[begin] == 48 or data[begin] == 46):
            count, begin = count - (data[begin] == 48), begin + 1  # leading zeros do not count
    return mantissa, exponent, negative, integer, at if count <= 18 else np.int64(DOUBTFUL)


@inlined
def _two(data: Any, at: Int) -> Int:
    """Return the number with the two decimal digits at `data[at]`, or -10000 if one of the two bytes is not a digit."""
    tens, ones = np.int64(data[at]) - 48, np.int64(data[at + 1]) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else np.int64(-10000)


@inlined
def read_date(data: Any, at: Int, stop: Int) -> Any:
    """Read the date `YYYY-MM-DD` at `data[at]`; return its days since 1970 and the position after the date.

    The position is DOUBTFUL if there is no such date, or if its year is 0000.
    """
    if stop - at < 10 or data[at + 4] != 45 or data[at + 7] != 45:
        return np.int64(0), np.int64(DOUBTFUL)
    year, month, day = _two(data, at) * 100 + _two(data, at + 2), _two(data, at + 5), _two(data, at + 8)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return np.int64(0), np.int64(DOUBTFUL)
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last_day = 28 + is_leap if month == 2 else 30 if month in (4, 6, 9, 11) else 31
    if day > last_day:
        return np.int64(0), np.int64(DOUBTFUL)
    # Days are counted from a 1 March, so that the leap day is the last day of a year.
    shifted, months = year - (month <= 2), (month + 9) % 12
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + (153 * months + 2) // 5 + day - 1
    return days - 719468, at + 10


@inlined
def _read_zone(data: Any, at: Int, stop: Int) -> Any:
    """Return the offset from UTC that `data[at:stop]` states, in seconds to the east, and whether it is valid.

    The offset is valid if the text is `Z`, `+HH:MM` or `-HH:MM`, with fewer than 18 hours.
    """
    if stop - at == 1:
        return np.int64(0), data[at] == 90
    if stop - at != 6 or (data[at] != 43 and data[at] != 45) or data[at + 3] != 58:
        return np.int64(0), False
    hours, minutes = _two(data, at + 1), _two(data, at + 4)
    seconds = hours * 3600 + minutes * 60
    return -seconds if data[at] == 45 else seconds, 0 <= hours <= 17 and 0 <= minutes <= 59


@inlined
def read_timestamp(data: Any, at: Int, stop: Int, zoned: Any, unzoned: Any) -> Any:
    """Return the microseconds since 1970 of the timestamp `data[at:stop]`, and whether this result is certain.

    The result is certain if the text is `YYYY-MM-DD[T ]HH:MM:SS[.f][zone]`. In addition, `zoned` must be True for a
    text with a zone, and `unzoned` must be True for a text without a zone.
    """
    days, at = read_date(data, at, stop)
    if at < 0 or stop - at < 9 or (data[at] != 84 and data[at] != 32) or data[at + 3] != 58 or data[at + 6] != 58:
        return np.int64(0), False
    hours, minutes, seconds = _two(data, at + 1), _two(data, at + 4), _two(data, at + 7)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59:
        return np.int64(0), False
    at, fraction = at + 9, np.int64(0)
    if at < stop and data[at] == 46:
        fraction, after = _digits(data, at + 1, stop, fraction)
        if after == at + 1 or after > at + 7:
            return np.int64(0), False
        for _ in range(after, at + 7):
            fraction *= 10
        at = after
    time = hours * 3600 + minutes * 60 + seconds
    if at == stop:
        return ((days * 86400 + time) * 1000000) + fraction, unzoned
    east, is_zone = _read_zone(data, at, stop)
    return ((days * 86400 + time - east) * 1000000) + fraction, zoned and is_zone


@kernel
def skip_scalar(data: Any, at: Int, stop: Int) -> Int:
    """Return the position after the string, number, `true`, `false` or `null` at `data[at]`.

    Returns DOUBTFUL if no such value is there, or if it is not certain where the value ends.
    """
    byte = data[at]
    if byte == 34:
        at = string_end(data, at + 1, stop)
        return at + 1 if at >= 0 else at
    if byte == 45 or 48 <= byte <= 57:
        _, _, _, _, at = read_number(data, at, stop)
        return at
    return literal_end(data, at, stop)


@inlined
def skip_colon(data: Any, at: Int, stop: Int) -> Int:
    """Skip the colon at `data[at]` and blanks around it; return the next position, or DOUBTFUL if there is no colon."""
    if at < stop and data[at] != 58:
        at = skip_blanks(data, at, stop)
    if at >= stop or data[at] != 58:
        return np.int64(DOUBTFUL)
    return skip_blanks(data, at + 1, stop)
