"""Decimal numbers become the nearest double, or float, or nothing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tiered_stream.formats.json.json_text_kernels import nearest_double, nearest_float

DIGITS = st.integers(0, 10**18 - 1) | st.integers(0, 10**9)


@given(DIGITS, st.integers(-360, 320) | st.integers(-30, 30))
@example(9007199254740993, 0)  # between two doubles
@example(9007199254740993 * 5, -1)
@example(9223372036854775, 23)
@example(1, -324)
@example(17976931348623157, 292)
@example(17976931348623159, 292)
def test_a_double_that_is_certain_is_pythons(digits: int, exponent: int) -> None:
    value, certain = nearest_double(digits, exponent)
    assert not certain or value == float(f"{digits}e{exponent}")


@given(DIGITS, st.integers(-60, 50))
@example(16777217, 0)
@example(7038531, -32)
def test_a_float_that_is_certain_is_the_nearest(digits: int, exponent: int) -> None:
    value, certain = nearest_float(digits, exponent)
    assert not certain or value == pa.scalar(f"{digits}e{exponent}").cast(pa.float32()).as_py()


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_what_doubles_are_written_as_is_certain(number: float) -> None:
    digits, _, exponent = f"{number:.17e}".replace(".", "").partition("e")
    assert nearest_double(int(digits[:17]), int(exponent) - 16)[1]


@pytest.mark.parametrize(("digits", "exponent"), [(5, -324), (1, 309), (10**17, 400), (1, -400)])
def test_what_is_nearly_nothing_or_too_large_is_left_to_others(digits: int, exponent: int) -> None:
    assert not nearest_double(digits, exponent)[1]


@given(st.floats(width=32, min_value=2.0**-120, max_value=2.0**120))
def test_a_number_just_between_two_floats_is_never_rounded_twice(low: float) -> None:
    middle = (Fraction(low) + Fraction(float(np.nextafter(np.float32(low), np.float32(np.inf))))) / 2
    digits, exponent = f"{float(middle):.17e}".replace(".", "").split("e")
    value, certain = nearest_float(int(digits[:18]), int(exponent) - 17)
    assert not certain or value == pa.scalar(f"{digits[:18]}e{int(exponent) - 17}").cast(pa.float32()).as_py()
