"""Facts that a JSON Schema states of a value's type, how the facts of several schemas combine, and the Arrow type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa

SIMPLE = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
NAMES = ("null", "object", "array", "string", *SIMPLE)
"""Types of JSON Schema."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Facts about the values that a schema allows. Without arguments, a value may be anything."""

    names: frozenset[str] | None = None
    """JSON Schema's types of the values; None: any type."""
    text: pa.DataType | None = None
    """Type of the column if the values are strings; None: string."""
    fields: dict[str, Shape] = field(default_factory=dict)
    """Properties of the values that are objects."""
    others: Shape | None = None
    """Values of all other properties (`additionalProperties`), if they have a schema."""
    items: Shape | None = None
    """Items of the values that are arrays."""
    is_tuple: bool = False
    """True if items have different schemas by their position."""
    is_union: bool = False
    """True if alternatives need columns of different types."""
    is_partial: bool = False
    """True if only some alternatives describe the value, so that it may be anything in the others."""

    @property
    def is_settled(self) -> bool:
        """Return whether alternatives cannot make the column a text, because properties or a type are declared."""
        simple = self.names is not None and not self.names & {"object", "array"}
        return not self.is_union and (simple or bool(self.fields))


ANY = Shape()
_NULL = frozenset(["null"])
_Join = Callable[[Shape, Shape], Shape]


def both(first: Shape, second: Shape) -> Shape:
    """Return the shape of values that both shapes describe (`allOf`, `$ref` next to other keywords)."""
    return _joined(first, second, _common_names(first.names, second.names), both)


def filled(declared: Shape, alternatives: Shape) -> Shape:
    """Return the shape `declared` with what only `alternatives` describes.

    A condition on some values never changes a declared type, because the condition need not hold for all values.
    """
    if alternatives.is_partial and not declared.fields:
        return declared
    names = alternatives.names if declared.names is None else declared.names
    return _joined(declared, alternatives, names, filled)


def any_of(options: Sequence[Shape]) -> Shape:
    """Return the shape of values that at least one of `options` describes."""
    described = [option for option in options if option.names != _NULL]
    if not described:
        return options[0]
    is_any = any(option.names is None and not option.fields for option in options)
    names = frozenset().union(*(option.names or {"object"} for option in options))
    texts = {option.text for option in described}
    fields = {name: _field(name, described) for option in described for name in option.fields}
    others = [option.others for option in described if option.others is not None]
    items = [option.items for option in described if option.items is not None]
    return Shape(
        None if is_any else names,
        texts.pop() if len(texts) == 1 else None,
        fields,
        any_of(others) if others else None,
        any_of(items) if items else None,
        is_tuple=any(option.is_tuple for option in described),
        is_union=any(option.is_union for option in described) or _single({*map(kind_of, described)}) is None,
    )


def _field(name: str, options: Sequence[Shape]) -> Shape:
    described = [option.fields[name] for option in options if name in option.fields]
    return replace(any_of(described), is_partial=len(described) < len(options))


def _common_names(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    if first is None or second is None:
        return second if first is None else first
    wide = [names | {"integer"} if "number" in names else names for names in (first, second)]
    common = wide[0] & wide[1]
    return common - {"integer"} if "number" in common else common or first | second


def _joined(first: Shape, second: Shape, names: frozenset[str] | None, join: _Join) -> Shape:
    """Return a shape with the facts of both shapes. `join` joins the shapes of a property, or of items."""
    texts = [shape.text for shape in (first, second) if shape.text is not None]
    new = {name: shape for name, shape in second.fields.items() if name not in first.fields}
    known = {name: join(shape, second.fields.get(name, ANY)) for name, shape in first.fields.items()}
    return Shape(
        names,
        texts[0] if len(set(texts)) == 1 or (texts and join is filled) else None,
        known | {name: replace(shape, is_partial=False) for name, shape in new.items()},
        _either(first.others, second.others, join),
        _either(first.items, second.items, join),
        is_tuple=first.is_tuple or second.is_tuple,
        is_union=(first.is_union and not second.is_settled) or (second.is_union and not first.is_settled),
    )


def _either(first: Shape | None, second: Shape | None, join: _Join) -> Shape | None:
    return reduce(join, [shape for shape in (first, second) if shape is not None] or [ANY]) if first or second else None


def kind_of(shape: Shape) -> pa.DataType:
    """Return the type of the column for values of a shape: null if no value is anything else.

    Integer and number become double. A string has the JSON text of values that may have several types.
    """
    if shape.is_union:
        return pa.string()
    names = frozenset(["object" if shape.fields else "any"]) if shape.names is None else shape.names
    kind = _single({_kind_of_name(name, shape) for name in names - _NULL})
    return pa.string() if kind is None else kind


def _single(kinds: set[pa.DataType]) -> pa.DataType | None:
    """Return the type of a column for values of all `kinds`, or None if they have no common type but text."""
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return None if len(kinds) > 1 else next(iter(kinds), pa.null())


def unions_of(shape: Shape, path: str = "") -> Iterator[str]:
    """Yield the paths of columns below `shape` that are text because their values may have several types."""
    kind = kind_of(shape)
    if pa.types.is_struct(kind):
        for name, each in shape.fields.items():
            yield from unions_of(each, f"{path}.{name}".lstrip("."))
    elif pa.types.is_map(kind) and shape.others is not None:
        yield from unions_of(shape.others, f"{path}[]")
    elif pa.types.is_list(kind) and shape.items is not None:
        yield from unions_of(shape.items, f"{path}[]")
    elif kind == pa.string() and (shape.is_union or len((shape.names or _NULL) - _NULL) > 1):
        yield path


def column_kind(shape: Shape) -> pa.DataType:
    """Return the type of a column for values of a shape, which is a string if no value is anything but null."""
    kind = kind_of(shape)
    return pa.string() if pa.types.is_null(kind) else kind


def _kind_of_name(name: str, shape: Shape) -> pa.DataType:
    if name == "object" and shape.fields:
        return pa.struct([(name, column_kind(each)) for name, each in shape.fields.items()])
    if name == "object" and shape.others is not None:
        return pa.map_(pa.string(), column_kind(shape.others))
    if name == "array" and not shape.is_tuple:
        return pa.list_(pa.field("element", column_kind(shape.items or ANY)))
    if name == "string" and shape.text is not None:
        return shape.text
    return SIMPLE.get(name, pa.string())
