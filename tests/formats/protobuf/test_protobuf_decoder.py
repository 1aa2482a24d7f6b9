"""Protobuf messages become rows as Spark makes them, or reasons."""

from __future__ import annotations

import datetime
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.formats.landed import comparable, row_of
from tests.formats.protobuf_cases import made
from tests.rigs.fuzz.mutation import spoiled
from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder, message_descriptor

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "other.proto";
message Nothing {}
message Order {
  int64 id = 1; uint32 small = 2; uint64 large = 3; sint32 signed = 4; fixed64 fixed = 5; bool paid = 6;
  float rate = 7; double amount = 8; string name = 9; bytes raw = 10; State state = 11; repeated State states = 12;
  repeated int32 numbers = 13; map<string, int64> counts = 14; map<int32, Line> lines = 15; Line line = 16;
  google.protobuf.Timestamp at = 17; google.protobuf.Duration took = 18;
  oneof choice { int32 one = 19; string other = 20; }
  optional int32 maybe = 21; Nothing nothing = 22; repeated Line list = 23; other.Thing thing = 24;
}
message Line { string item = 1; int32 count = 2; }
enum State { NEW = 0; DONE = 1; }
message Ring { Ring next = 1; }
"""
OTHER = """
syntax = "proto2";
package other;
message Thing { required int32 a = 1; optional int32 b = 2 [default = 7]; optional G g = 3; enum G { X = 1; } }
"""


@cache
def descriptor_set() -> bytes:
    return compiled_proto({"order.proto": PROTO, "other.proto": OTHER})


def decode(*values: bytes | None, message: str = "shop.Order") -> tuple[list[Any], dict[int, str]]:
    decoder = ProtobufDecoder(descriptor_set(), message)
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.column.validate(full=True)
    assert decoded.column.type == decoder.kind
    return decoded.column.to_pylist(), dict(decoded.reasons)


EMPTY = {"states": [], "numbers": [], "counts": [], "lines": [], "list": []}


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ("", {}),
        ("08 02 08 03", {"id": 3}),
        ("10 ffffffff0f", {"small": -1}),
        ("35 0000", None),
        ("4a 01 c3", None),
        ("58 05", {"state": "UNKNOWN_ENUM_VALUE_State_5"}),
        ("60 00 62 02 01 00", {"states": ["NEW", "DONE", "NEW"]}),
        ("6a 02 01 02 68 03", {"numbers": [1, 2, 3]}),
        ("72 03 0a 01 61", {"counts": [("a", 0)]}),
        ("7a 06 08 01 12 02 10 03", {"lines": [(1, {"item": None, "count": 3})]}),
        ("82 01 03 0a 01 61 82 01 02 10 02", {"line": {"item": "a", "count": 2}}),
        ("98 01 01 a2 01 00", {"other": ""}),
        ("c2 01 02 08 01", {"thing": {"a": 1, "b": 7, "g": None}}),
        ("c2 01 04 08 01 18 09", {"thing": {"a": 1, "b": 7, "g": None}}),
        ("c2 01 00", None),
        ("8a 01 06 08 01 10 87 ad 4b", {"at": datetime.datetime(1970, 1, 1, 0, 0, 1, 1234, datetime.UTC)}),
        ("92 01 0b 10 81 ff ff ff ff ff ff ff ff 01", {"took": datetime.timedelta(0)}),
        ("08", None),
        ("08 ffffffffffffffffffff01", None),
        ("0a ff ff", None),
        ("88 80 80 80 80 00 01", None),
        ("4a 01 c3 4a 01 61", None),
        ("98 01 01 a2 01 01 61", {"other": "a"}),
        ("a2 01 01 c3 98 01 01", None),
        ("00 01", None),
    ],
)
def test_messages_are_rows_as_spark_makes_them(content: str, row: dict[str, Any] | None) -> None:
    rows, reasons = decode(bytes.fromhex(content))
    names = ProtobufDecoder(descriptor_set(), "shop.Order").kind.names
    assert comparable(rows) == comparable([None if row is None else {**dict.fromkeys(names), **EMPTY, **row}])
    assert list(reasons) == ([0] if row is None else [])


def test_entries_of_a_map_that_the_library_reads_have_the_same_order_in_each_process() -> None:
    entries = b"".join(b"\x72\x03\x0a\x01" + bytes((key,)) for key in b"zaqwsxedc")
    rows, _ = decode(b"\x58\x05" + entries)
    assert [key for key, _ in rows[0]["counts"]] == sorted("zaqwsxedc")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('syntax = "proto3"; message M { string t = 1; }', b"\x0a\x01\xff"),
        ('syntax = "proto2"; message M { optional string t = 1; }', b"\x0a\x01\xff"),
        ('syntax = "proto2"; message M { repeated string t = 1; }', b"\x0a\x01\xff"),
        ('syntax = "proto2"; message M { map<string, string> t = 1; }', b"\x0a\x06\x0a\x01k\x12\x01\xff"),
        ('edition = "2023"; option features.utf8_validation = NONE; message M { string t = 1; }', b"\x0a\x01\xff"),
    ],
)
def test_a_string_that_is_not_utf8_gets_a_reason(text: str, content: bytes) -> None:
    decoder = ProtobufDecoder(compiled_proto({"m.proto": text}), "M")
    decoded = decoder.decode(pa.scalar([b"", content], pa.list_(pa.binary())).values)
    assert list(decoded.reasons) == [1] and "UTF-8" in decoded.reasons[1]


def test_a_time_that_does_not_fit_gets_a_reason() -> None:
    rows, reasons = decode(bytes.fromhex("8a010a08" + "ffffffffffffffff7f"))
    assert rows == [None]
    assert reasons[0].startswith("shop.Order.at: ") and "microseconds" in reasons[0]


@pytest.mark.parametrize(
    "fields",
    [
        "int64 seconds = 2; int32 nanos = 1;",
        "sint64 seconds = 1; int32 nanos = 2;",
        "int64 seconds = 1; sint32 nanos = 2;",
    ],
)
def test_fields_of_an_own_time_may_have_other_numbers_and_types(fields: str) -> None:
    text = f'syntax = "proto3"; message Timestamp {{ {fields} }} message M {{ Timestamp at = 1; }}'
    descriptors = compiled_proto({"m.proto": text})
    message = message_factory.GetMessageClass(message_descriptor(descriptors, "M"))()
    message.at.seconds, message.at.nanos = 10, 5000
    decoded = ProtobufDecoder(descriptors, "M").decode(pa.array([message.SerializeToString()], pa.binary()))
    at = datetime.datetime(1970, 1, 1, 0, 0, 10, 5, datetime.UTC)
    assert decoded.column.to_pylist() == [{"at": at}]


def test_a_message_that_lacks_a_required_message_without_fields_gets_a_reason() -> None:
    text = 'syntax = "proto2"; message Nothing {} message M { required Nothing nothing = 1; optional int32 id = 2; }'
    decoder = ProtobufDecoder(compiled_proto({"m.proto": text}), "M")
    decoded = decoder.decode(pa.array([bytes.fromhex("10 05"), bytes.fromhex("0a 00 10 05")], pa.binary()))
    assert decoded.column.to_pylist() == [None, {"id": 5}]
    assert list(decoded.reasons) == [0]


@given(st.integers(0, 2**32))
@settings(max_examples=examples(150), deadline=None)
def test_compiled_code_decodes_as_googles_library_does(seed: int) -> None:
    random = Random(seed)
    order = message_factory.GetMessageClass(message_descriptor(descriptor_set(), "shop.Order"))
    messages = [made(random, order()) for _ in range(10)]
    good = [each.SerializeToString() for each in messages]
    values = [*good, *(spoiled(random, each, good) for each in good)]
    decoder = Watched(descriptor_set(), "shop.Order")
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.column.validate(full=True)
    for at, each in enumerate(messages):
        has_default = each.HasField("thing") and not each.thing.HasField("b")
        assert (good[at] in decoder.asked) == (has_default or len(each.lines) > 1)
    for at, content in enumerate(values):
        try:
            row = decoder.by_library(content)
        except CorruptDataError:
            row = None
        assert (at in decoded.reasons) == (row is None)
        assert row_of(decoded.column, at) == row_of(pa.array([row], decoder.kind), 0)


class Watched(ProtobufDecoder):
    """Knows which values were left to Google's library."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: list[bytes] = []
        self.by_library = super()._exact_row

    def _exact_row(self, content: bytes) -> Any:
        self.asked.append(content)
        return self.by_library(content)


@pytest.mark.parametrize(
    ("descriptors", "message", "why"),
    [
        (b"\xff", "shop.Order", "no descriptor set of protoc"),
        (b"", "shop.Order", "has no message 'shop.Order'"),
        (None, "Order", "has no message 'Order'; give its full name"),
        (None, "shop.State", "has no message"),
        (None, "shop.Ring", "shop.Ring holds itself"),
    ],
)
def test_a_message_that_has_no_columns_is_refused(descriptors: bytes | None, message: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        ProtobufDecoder(descriptor_set() if descriptors is None else descriptors, message)


EXTENDED = """
syntax = "proto2";
message Order {
  optional int32 id = 1; optional bool paid = 2 [default = true]; extensions 10 to 20;
  extend Order { optional Need own = 11; }
}
message Need { required int32 a = 1; }
extend Order { optional Need more = 10; }
"""


@pytest.mark.parametrize("paid", [b"", b"\x10\x01"])
@pytest.mark.parametrize("extension", [b"\x52\x00", b"\x5a\x00"])
def test_extensions_have_no_columns_and_no_say_in_values(paid: bytes, extension: bytes) -> None:
    decoder = ProtobufDecoder(compiled_proto({"a.proto": EXTENDED}), "Order")
    decoded = decoder.decode(pa.array([b"\x08\x02" + paid + extension], pa.binary()))
    assert decoded.column.to_pylist() == [{"id": 2, "paid": True}] and decoded.reasons == {}


def test_a_descriptor_set_without_its_imports_is_refused() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set())
    kept = [each for each in files.file if each.name != "other.proto"]
    with pytest.raises(ConfigurationError, match=r"other\.proto.*--include_imports"):
        ProtobufDecoder(descriptor_pb2.FileDescriptorSet(file=kept).SerializeToString(), "shop.Order")


def test_files_of_a_descriptor_set_may_come_in_any_order() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set())
    turned = descriptor_pb2.FileDescriptorSet(file=reversed(files.file)).SerializeToString()
    assert ProtobufDecoder(turned, "shop.Line").kind.names == ["item", "count"]


def test_files_that_import_each_other_are_refused() -> None:
    ring = [descriptor_pb2.FileDescriptorProto(name=name, dependency=[other]) for name, other in ("ab", "ba")]
    with pytest.raises(ConfigurationError):
        ProtobufDecoder(descriptor_pb2.FileDescriptorSet(file=ring).SerializeToString(), "x")
