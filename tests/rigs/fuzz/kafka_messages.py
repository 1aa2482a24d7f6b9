"""Kafka's messages as pieces of bytes, made from kafka-python's schemas, so that one field at a time can be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from tests.gateway.requests import TOPIC_ID
from tests.rigs.fuzz.mutation import OVERLONG_VARINTS, below, fixed, number, one, spoiled, uvarint

_INTEGERS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "uint32": 4, "bool": 1, "float64": 8}
_VARIANTS = 24

KNOWN: Mapping[str, object] = {
    "name": b"t", "topic": b"t", "topic_name": b"t", "topic_id": TOPIC_ID.bytes, "partition": 0, "partition_index": 0,
    "broker_id": 1, "leader_id": 1, "node_id": 1, "host": b"broker", "port": 9092, "high_watermark": 1000,
    "last_stable_offset": 900, "log_start_offset": 10, "leader_epoch": 5, "mechanism": b"PLAIN", "endpoint_type": 1,
}  # fmt: skip
"""Fields by name, as the product expects them where all is well."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A few bytes of a message: an `integer`, a length or count (`int16`, `int32`, `compact`), or a `content`."""

    kind: str
    data: bytes


class _Writer:
    def __init__(self, random: Random, version: int, flexible: bool, known: Mapping[str, object]) -> None:
        self.pieces: list[Piece] = []
        self._random = random
        self._version = version
        self._flexible = flexible
        self._known = known

    def struct(self, struct: Any) -> None:
        for field in struct.untagged_fields(self._version):
            self._field(field)
        if self._flexible:
            self._tags(struct)

    def _tags(self, struct: Any) -> None:
        """Tagged fields, each with its own pieces between its length and the next."""
        known = [
            each for each in struct._fields if each.tagged_field_q(self._version) and each.for_version_q(self._version)
        ]
        chosen = [each for each in sorted(known, key=lambda each: each._tag) if self._random.random() < 0.5]
        self.pieces.append(Piece("compact", uvarint(len(chosen))))
        for field in chosen:
            inner = _Writer(self._random, self._version, self._flexible, self._known)
            inner._field(field)
            data = b"".join(piece.data for piece in inner.pieces)
            self.pieces += [Piece("compact", uvarint(field._tag)), Piece("compact", uvarint(len(data))), *inner.pieces]

    def _field(self, field: Any) -> None:
        kind = field._type_str
        nullable = field.nullable_for_version_q(self._version)
        null = nullable and self._random.random() < 0.2
        if kind.startswith("[]"):
            count = one(self._random, (0, 1, 1, 1, 2, 5))
            self._length(None if null else count, 4)
            for _ in range(0 if null else count):
                self.struct(field) if field.is_struct_array() else self._simple(kind[2:], field.name, null=False)
        elif field.is_struct():
            if nullable:
                self.pieces.append(Piece("integer", b"\xff" if null else b"\1"))
            if not null:
                self.struct(field)
        else:
            self._simple(kind, field.name, null)

    def _simple(self, kind: str, name: str, null: bool) -> None:
        known = self._known.get(name)
        if kind in _INTEGERS:
            value = known if isinstance(known, int) else one(self._random, (0, 0, 0, 1))
            self.pieces.append(Piece("integer", fixed(value, _INTEGERS[kind])))
        elif kind == "uuid":
            self.pieces.append(Piece("content", known if isinstance(known, bytes) else bytes(16)))
        else:
            content = known if isinstance(known, bytes) else one(self._random, (b"", b"some text"))
            self._length(None if null else len(content), 2 if kind == "string" else 4)
            self.pieces.append(Piece("content", b"" if null else content))

    def _length(self, length: int | None, size: int) -> None:
        if self._flexible:
            self.pieces.append(Piece("compact", uvarint(0 if length is None else length + 1)))
        else:
            self.pieces.append(Piece(f"int{8 * size}", fixed(-1 if length is None else length, size)))


@cache
def _variants(kind: Any, version: int, known: tuple[tuple[str, object], ...]) -> tuple[tuple[Piece, ...], ...]:
    """Right messages: some with empty arrays, some with null fields, some with tagged ones."""
    found = []
    for each in range(_VARIANTS):
        writer = _Writer(Random(each), version, kind.flexible_version_q(version), {**KNOWN, **dict(known)})
        writer.struct(kind._struct)
        found.append(tuple(writer.pieces))
    return tuple(found)


def body(random: Random, kind: Any, version: int, **known: object) -> bytes:
    """A message without its header, mostly with something wrong."""
    pieces = list(one(random, _variants(kind, version, tuple(sorted(known.items())))))
    form = random.random()
    if form < 0.6 and pieces:
        _spoil_piece(random, pieces)
    data = b"".join(piece.data for piece in pieces)
    return spoiled(random, data) if form > 0.75 else data


def _spoil_piece(random: Random, pieces: list[Piece]) -> None:
    lengths = [at for at, piece in enumerate(pieces) if piece.kind not in ("integer", "content")]
    at = one(random, lengths) if lengths and random.random() < 0.5 else below(random, len(pieces))
    piece = pieces[at]
    form = random.random()
    if form < 0.1:
        end = at + 1 + below(random, 6)
        pieces[at:at] = pieces[at:end] * one(random, (1, 1, 20))
    elif form < 0.2:
        del pieces[at : at + 1 + below(random, 3)]
    else:
        pieces[at] = Piece(piece.kind, _other(random, piece))


def _other(random: Random, piece: Piece) -> bytes:
    match piece.kind:
        case "compact":
            return one(random, OVERLONG_VARINTS) if random.random() < 0.2 else uvarint(number(random))
        case "content":
            return one(random, (b"", piece.data[1:], piece.data * 3, b"\xff" * len(piece.data), b"\xed\xa0\x80", b"\0"))
    return fixed(number(random), len(piece.data))


def request(random: Random, kind: Any, version: int, **known: object) -> bytes:
    """A request's content, its header right most of the time."""
    client_id = one(random, (b"client", b"client", b"", None, b"\xff" * 40))
    flexible = kind.flexible_version_q(version)
    header = [
        Piece("integer", fixed(kind.API_KEY, 2)), Piece("integer", fixed(version, 2)),
        Piece("integer", fixed(one(random, (1, 1, 7, -1)), 4)),
        Piece("int16", fixed(-1 if client_id is None else len(client_id), 2)), Piece("content", client_id or b""),
        *([Piece("compact", b"\0")] if flexible else []),
    ]  # fmt: skip
    if random.random() < 0.1:
        _spoil_piece(random, header)
    return b"".join(piece.data for piece in header) + body(random, kind, version, **known)


def response(random: Random, kind: Any, version: int, correlation_id: int = 1, **known: object) -> bytes:
    """A response's content, its header right most of the time."""
    header = fixed(correlation_id, 4)
    if kind.flexible_version_q(version) and kind.name != "ApiVersionsResponse":
        header += b"\0" if random.random() < 0.97 else one(random, (b"\1\0\0", b"\1\5\x02ab", b"\xff\xff\xff\xff\x0f"))
    return header + body(random, kind, version, **known)


def versions_of(kind: Any) -> Sequence[int]:
    return range(kind.max_version + 1)
