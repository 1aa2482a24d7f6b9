"""Fetch as Kafka has it, and KIP-1248's and KIP-1254's fields on top.

The KIPs want a Fetch version of their own, but its number went to another KIP. So the fields travel as tagged fields on
the flexible versions that there are: a broker that does not know them must pass over them. Names with a star are not
in the KIPs.

    FetchRequest
        1248  RemoteLogSegmentLocationRequested   bool
        1254  SupportedStorageFormatVersions      []string
        1255  MaxRemoteLogSegments *              int32, how many segments one answer may name
        1256  LocalSegmentsWanted *               bool, also those that the broker still has on its own disk
        1257  RemoteLogSegmentPartBytes *         int64, cut larger segments at batch starts into parts of about so many
        1258  OffsetsOnly *                       bool, no byte positions, aborted transactions or signed locations
    FetchRequest, partition
        1248  RemoteLogSegmentEndOffset *         int64, exclusive
    FetchResponse, partition
        1248  RemoteLogSegments                   array of structs, see `_SEGMENT`
        1249  LocatedEndOffset *                  int64, exclusive: what lies before it and in no segment is not tiered;
                                                  from there on, ask again

kafka-python registers response classes by API key for the whole process, so this is the process's one Fetch: import it
before the first answer is read. It is a superset: kafka-python's own consumer does not notice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from types import MethodType
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas.fields.codecs import EncodeBufferPool
from kafka.protocol.schemas.fields.codegen import CodegenContext

LOCATION_FEATURE = "remote.log.segment.location"
"""The feature in ApiVersions that says who answers with locations."""

LOCATIONS, SIGNED_LOCATIONS = 1, 2
"""Its versions: the second signs them, too."""

STORAGE_FORMAT = "ApacheKafkaV1"
"""KIP-1248's name for segments as Kafka writes them."""

LOCATION_TAG = 1248
FIRST_VERSION = 13
"""Fetch versions with locations: flexible, topics by id."""

_LAST_VERSION = 17
_Json = dict[str, Any]


def _tagged(name: str, kind: str, tag: int, **more: Any) -> _Json:
    return {"name": name, "type": kind, "versions": "12+", "taggedVersions": "12+", "tag": tag, **more}


def _field(name: str, kind: str, **more: Any) -> _Json:
    return {"name": name, "type": kind, "versions": "12+", **more}


_SEGMENT = [
    _field("RemoteLogSegmentId", "uuid"),
    _field("RemoteLogSegmentCustomMetadata", "bytes", nullableVersions="12+", default="null"),
    _field("SignedRemoteLogSegmentLocation", "string", nullableVersions="12+", default="null"),
    _field("StorageFormatVersion", "string"),
    _field("BaseOffset", "int64"),
    _field("LastOffset", "int64"),
    _field("SizeInBytes", "int32"),
    _field("StartOffset", "int64"),
    _field("EndOffset", "int64"),
    _field("StartPosition", "int32"),
    _field("EndPosition", "int32"),
    _field("FollowingOffsetMin", "int64"),
    _field("FollowingOffsetMax", "int64"),
    _field("LeaderEpochs", "[]SegmentLeaderEpoch", fields=[_field("Epoch", "int32"), _field("StartOffset", "int64")]),
    _field(
        "AbortedTransactions",
        "[]SegmentAbortedTransaction",
        fields=[_field("ProducerId", "int64"), _field("FirstOffset", "int64"), _field("LastOffset", "int64")],
    ),
]
"""Offsets: of the segment (last inclusive), then of the part to read (end exclusive), as its byte positions are. The
batch after the part begins at an offset between the following ones, both included; -1: that is not known.
"""


def _named(fields: list[_Json], name: str) -> _Json:
    return next(field for field in fields if field["name"] == name)


class FetchRequest(ApiMessage):  # type: ignore[misc]
    """Kafka's FetchRequest with the fields above."""

    @classmethod
    def json_patch(cls, json: _Json) -> _Json:
        json["fields"] += [
            _tagged("RemoteLogSegmentLocationRequested", "bool", LOCATION_TAG, default="false"),
            _tagged("SupportedStorageFormatVersions", "[]string", 1254),
            _tagged("MaxRemoteLogSegments", "int32", 1255),
            _tagged("LocalSegmentsWanted", "bool", 1256, default="false"),
            _tagged("RemoteLogSegmentPartBytes", "int64", 1257),
            _tagged("OffsetsOnly", "bool", 1258, default="false"),
        ]
        partition = _named(_named(json["fields"], "Topics")["fields"], "Partitions")
        partition["fields"].append(
            _tagged("RemoteLogSegmentEndOffset", "int64", LOCATION_TAG, default=str((1 << 63) - 1))
        )
        return json


class FetchResponse(ApiMessage):  # type: ignore[misc]
    """Kafka's FetchResponse with the fields above; `remote_log_segments` are bytes, see `decode_segments`."""

    @classmethod
    def json_patch(cls, json: _Json) -> _Json:
        partition = _named(_named(json["fields"], "Responses")["fields"], "Partitions")
        partition["fields"] += [
            _tagged("RemoteLogSegments", "[]RemoteLogSegmentLocation", LOCATION_TAG, fields=_SEGMENT),
            _tagged("LocatedEndOffset", "int64", 1249, default="-1"),
        ]
        return json


def _partition_struct() -> Any:
    return FetchResponse._struct.fields["responses"].array_of.fields["partitions"].array_of


_SEGMENTS_FIELD = _partition_struct().fields["remote_log_segments"]


def _encoder(field: Any, version: int) -> Callable[[Any, Any], None]:
    """kafka-python's generated code for an array within a tagged field, which it otherwise encodes by reflection."""
    context = CodegenContext()
    for line in ("def encode(item, out):", "    buf, pos = out.buf, out.pos", "    _cap = len(buf)"):
        context.lines.append(line)
    type(field).emit_encode_into(field, context, "item", "    ", version=version, compact=True, tagged=None)
    context.lines.append("    out.pos = pos")
    exec(compile(context.source(), "<segments>", "exec"), context.globs)
    encode: Callable[[Any, Any], None] = context.globs["encode"]
    return encode


def _decoder(field: Any, version: int) -> Callable[[Any, int], tuple[list[Any], int]]:
    context = CodegenContext()
    context.lines.append("def decode(data, pos):")
    type(field).emit_decode_from(field, context, "found", "    ", version=version, compact=True, tagged=None)
    context.lines.append("    return found, pos")
    exec(compile(context.source(), "<segments>", "exec"), context.globs)
    decode: Callable[[Any, int], tuple[list[Any], int]] = context.globs["decode"]
    return decode


_encode = _encoder(_SEGMENTS_FIELD, _LAST_VERSION)
_decode = _decoder(_SEGMENTS_FIELD, _LAST_VERSION)


RemoteLogSegmentLocation: Any = _SEGMENTS_FIELD.data_class
"""One segment of an answer; its fields are `_SEGMENT`'s, in snake case, and must all be given."""


def encode_segments(segments: Sequence[Any]) -> bytes:
    """Tag 1248 of a partition in the response."""
    with EncodeBufferPool.acquire() as out:
        _encode(list(segments), out)
        return bytes(out.result())


def decode_segments(data: bytes) -> list[Any]:
    """Inverse of `encode_segments`: objects with `_SEGMENT`'s fields in snake case.

    Raises:
        ValueError: the bytes do not have that form.
    """
    try:
        found, end = _decode(memoryview(data), 0)
    except (IndexError, ValueError, TypeError, struct.error) as error:
        raise ValueError(f"it breaks off or has a malformed field ({error})") from error
    if found is None or end != len(data):
        raise ValueError(f"{len(data)} bytes, {end} of them are segments")
    return found


def _encode_encoded(value: bytes, out: Any, **_: Any) -> None:
    """The segments as bytes that are encoded already: an answer may name 100,000 that were named before."""
    out.ensure(len(value))
    out.buf[out.pos : out.pos + len(value)] = value
    out.pos += len(value)


def _read_tags(fields: Any, version: int, data: Any, pos: int) -> tuple[dict[str, Any], int]:
    """A section of tagged fields. kafka-python's own reader copies the rest of the message for each."""
    known = fields.tagged_fields(version)._tags
    count, pos = _uvarint(data, pos)
    found: dict[str, Any] = {}
    for _ in range(count):
        tag, pos = _uvarint(data, pos)
        size, pos = _uvarint(data, pos)
        value = bytes(data[pos : pos + size])
        if len(value) != size:
            raise ValueError(f"tagged field {tag} is cut off")
        pos += size
        if tag == LOCATION_TAG:
            found["remote_log_segments"] = value
        elif tag in known:
            found[known[tag].name] = known[tag].decode(BytesIO(value), version=version, compact=True, tagged=None)
        else:
            found[f"_{tag}"] = value
    return found, pos


def _uvarint(data: Any, pos: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise ValueError("a number is too long")


def _emit_tagged_decode(self: Any, ctx: Any, var_name: str, indent: str, version: int) -> None:
    """In place of `StructField._emit_tagged_decode`, for the partitions of a response."""
    ctx.globs["_read_tags"], ctx.globs["_struct_of_tags"] = _read_tags, self
    for line in (
        f"_found, pos = _read_tags(_struct_of_tags, {version}, data, pos)",
        "for _name, _value in _found.items():",
        "    if _name.startswith('_'):",
        f"        {var_name}.unknown_tags = {{**({var_name}.unknown_tags or {{}}), _name: _value}}",
        "    else:",
        f"        {var_name}.tags = {{*({var_name}.tags or ()), _name}}",
        f"        setattr({var_name}, _name, _value)",
    ):
        ctx.emit(indent, line)


_partition_struct()._emit_tagged_decode = MethodType(_emit_tagged_decode, _partition_struct())
_SEGMENTS_FIELD.encode_into = _encode_encoded
