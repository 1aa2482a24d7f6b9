"""SQL's CAST for types between which it cannot fail, and TRY_CAST, which gives NULL for a value that does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.sql_reader import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    NULL,
    STRING,
    TIMESTAMP,
    SqlTypeError,
    parse_type,
    sql_name,
)
from tiered_stream.formats.sql.sql_times import date_of, time_literal
from tiered_stream.formats.sql.sql_values import (
    BLANKS,
    Bound,
    as_decimal,
    call,
    digits,
    is_decimal,
    is_floating,
    is_integer,
    literal,
    of_arrays,
    widened,
    within,
)

_KINDS = (BOOLEAN, pa.int8(), pa.int16(), INT, BIGINT, FLOAT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP)
_INTEGER = r"\A[+-]?0*[0-9]{1,38}\z"
_SIMPLE_DOUBLE = r"\A[+-]?[0-9]{1,300}(\.[0-9]{0,300})?([eE][+-]?[0-9]{1,3})?\z"
_DOUBLE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?", re.ASCII)
_SPECIAL = {
    "inf": np.inf, "+inf": np.inf, "infinity": np.inf, "+infinity": np.inf, "-inf": -np.inf, "-infinity": -np.inf,
    "nan": np.nan,
}  # fmt: skip
_JAVA_BLANKS = "".join(map(chr, range(33)))
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def kind_of(name: str) -> pa.DataType:
    """Return the Arrow type for `name`, the name of the target type in a CAST or TRY_CAST.

    Raises:
        SqlTypeError: the type is not supported.
    """
    kind = parse_type(name)
    if kind not in _KINDS and not is_decimal(kind):
        raise SqlTypeError(f"the type {name:.100} is not on the list: {', '.join(map(sql_name, _KINDS))}, DECIMAL(p,s)")
    return kind


def cast(arg: Bound, name: str, zone_is_utc: bool, *, tries: bool = False) -> Bound:
    """Return the expression `CAST(arg AS name)` or, if `tries` is True, `TRY_CAST(arg AS name)`.

    `zone_is_utc` states whether the session's time zone is UTC; some casts to DATE and TIMESTAMP need that.

    Raises:
        SqlTypeError: the cast is not supported. CAST is supported only if every value of the type of `arg` fits, or if
            `arg` is a literal that fits.
    """
    kind = kind_of(name)
    if arg.kind in (kind, NULL):
        return arg if arg.kind == kind else literal(None, kind)
    if not tries and kind in (DATE, TIMESTAMP) and arg.kind == STRING and arg.is_literal:
        return time_literal(str(arg.literal), kind, zone_is_utc)
    result, tried = _certain(arg, kind, zone_is_utc), _tried(arg, kind)
    if result is None and tries:
        result = tried
    if result is None:
        hint = f": use TRY_CAST(… AS {name}), which gives NULL for a value that does not fit" if tried else ""
        function = "TRY_CAST" if tries else "CAST"
        raise SqlTypeError(f"{function} of {sql_name(arg.kind)} AS {name} is not on the list{hint}")
    return result


def _certain(arg: Bound, kind: pa.DataType, zone_is_utc: bool) -> Bound | None:
    """Return the expression `CAST(arg AS kind)`, or None if the cast can fail or is not supported."""
    source = arg.kind
    if _is_literal_of(arg, kind):  # such as 3Y
        return literal(arg.literal, kind)
    if is_integer(source) and is_integer(kind) and digits(source) <= digits(kind):
        return widened(arg, kind)
    if kind == DOUBLE and (is_integer(source) or source == FLOAT or is_decimal(source)):
        return widened(arg, kind)
    # Not INT AS FLOAT: Spark leaves that cast out before another one, although it rounds.
    if kind == FLOAT and is_integer(source) and source.bit_width <= 16:
        return widened(arg, kind)
    if is_decimal(kind) and (is_integer(source) or is_decimal(source)):
        own = (source.precision, source.scale) if is_decimal(source) else (digits(source), 0)
        room = (19 if source == BIGINT else own[0]) - own[1] <= kind.precision - kind.scale
        if own[1] <= kind.scale and room:
            return widened(arg, kind)
    if kind == STRING and (is_integer(source) or source == BOOLEAN):
        return call(STRING, lambda values: values.cast(STRING), arg)
    if is_integer(kind) and source == BOOLEAN:
        return call(kind, lambda values: values.cast(kind), arg)
    if kind == BINARY and source == STRING:
        return call(BINARY, lambda values: values.cast(BINARY), arg)
    return date_of(arg, zone_is_utc) if kind == DATE and pa.types.is_timestamp(source) else None


def _is_literal_of(arg: Bound, kind: pa.DataType) -> bool:
    """Return whether `arg` is a literal integer that the integer type `kind` holds."""
    if not (is_integer(arg.kind) and is_integer(kind) and arg.is_literal and arg.literal is not None):
        return False
    return bool(-1 << (kind.bit_width - 1) <= arg.literal < 1 << (kind.bit_width - 1))


def _tried(arg: Bound, kind: pa.DataType) -> Bound | None:
    """Return the expression `TRY_CAST(arg AS kind)`, or None if the cast is not supported."""
    source = arg.kind
    function: Callable[[pa.Array], pa.Array] | None = None
    if is_integer(kind):
        if is_integer(source):
            function = partial(within, kind)
        elif is_floating(source):
            function = partial(_truncated, kind)
        elif source == STRING:
            function = partial(_integers_of_texts, kind)
    elif is_decimal(kind) and (is_integer(source) or is_decimal(source)):
        arg, function = as_decimal(Bound(source, arg.values)), partial(_rounded, kind)
    elif kind == DOUBLE and source == STRING:
        function = _doubles_of_texts
    elif kind == BOOLEAN and source == STRING:
        function = _booleans_of_texts
    return None if function is None else call(kind, of_arrays(function), arg)


def _where(fits: pa.Array, values: pa.Array) -> pa.Array:
    """Return `values` with null where `fits` is false or null."""
    return pc.if_else(pc.coalesce(fits, pa.scalar(False)), values, pa.scalar(None, values.type))


def _truncated(kind: pa.DataType, numbers: pa.Array) -> pa.Array:
    """Cast DOUBLE or FLOAT to the integer type `kind`. Fractions are cut off, and numbers out of range become null.

    As in Spark (`DoubleExactNumeric`), the number 2 to the power of 63 becomes the largest BIGINT.
    """
    wide, largest = numbers.cast(DOUBLE), (1 << (kind.bit_width - 1)) - 1
    fits = pc.and_(pc.less_equal(pc.floor(wide), float(largest)), pc.greater_equal(pc.ceil(wide), float(-largest - 1)))
    whole = pc.trunc(_where(fits, wide))
    at_top = pc.greater_equal(whole, 2.0**63)
    result = pc.if_else(at_top, pa.scalar(0.0), whole).cast(BIGINT, safe=False)
    return pc.if_else(at_top, pa.scalar(largest, BIGINT), result).cast(kind)


def _rounded(kind: pa.DataType, numbers: pa.Array) -> pa.Array:
    """Cast DECIMAL numbers to the DECIMAL type `kind`, rounded half up. Numbers out of range become null."""
    scale = numbers.type.scale
    # Twice the digits have room for each DECIMAL at any scale, also for a number that is rounded up.
    wide = numbers.cast(pa.decimal256(2 * MAX_PRECISION, scale))
    if kind.scale < scale:
        wide = pc.round(wide, ndigits=kind.scale, round_mode="half_towards_infinity")
    # No check whether digits are lost: they are zeros now.
    wide = wide.cast(pa.decimal256(2 * MAX_PRECISION, kind.scale), safe=False)
    limit = pa.scalar(Decimal(10 ** (kind.precision - kind.scale)), wide.type)
    return _where(pc.and_(pc.less(wide, limit), pc.greater(wide, pc.negate(limit))), wide).cast(kind)


def _trimmed(texts: pa.Array) -> pa.Array:
    return pc.utf8_trim(texts, characters=BLANKS)


def _integers_of_texts(kind: pa.DataType, texts: pa.Array) -> pa.Array:
    trimmed = _trimmed(texts)
    whole = pc.utf8_ltrim(_where(pc.match_substring_regex(trimmed, _INTEGER), trimmed), characters="+")
    try:
        return whole.cast(kind)
    except pa.ArrowInvalid:  # a number of the batch does not fit
        return within(kind, whole.cast(pa.decimal128(MAX_PRECISION, 0)))


def _doubles_of_texts(texts: pa.Array) -> pa.Array:
    simple = pc.match_substring_regex(texts, _SIMPLE_DOUBLE)
    certain = pc.utf8_ltrim(_where(simple, texts), characters="+").cast(DOUBLE)
    others = pc.coalesce(pc.invert(simple), pa.scalar(False))
    if others.true_count == 0:
        return certain
    rare = pa.array(map(_exact_double, texts.filter(others).to_pylist()), DOUBLE)
    return pc.replace_with_mask(certain, others, rare)


def _exact_double(text: str) -> float | None:
    """Parse a DOUBLE as Spark does, by Java's `parseDouble` or by special names such as `inf`.

    Returns None if the text is not a number.
    """
    trimmed = text.strip(_JAVA_BLANKS)
    if _DOUBLE.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(trimmed):
        return _hexadecimal(trimmed)
    if trimmed in ("NaN", "+NaN", "-NaN"):
        return float("nan")
    return _SPECIAL.get(trimmed.lower())


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text.rstrip("fFdD") if "p" in text.lower() else text)
    except OverflowError:
        return -np.inf if text.startswith("-") else np.inf


def _booleans_of_texts(texts: pa.Array) -> pa.Array:
    words = pc.ascii_lower(_trimmed(texts))
    true, false = (pc.is_in(words, value_set=pa.array(known)) for known in (_TRUE, _FALSE))
    return _where(pc.or_(true, false), true)
