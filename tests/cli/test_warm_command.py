"""`tiered-stream warm` in a copy of the package, as in an environment that is about to be packed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.records.shipped_package import compiled_files, run, ship
from tests.records.test_compiled import DECODE
from tiered_stream.cli import app
from tiered_stream.records import compiled

HASH = """
from tiered_stream.records.row_hash import row_hashes
assert len(row_hashes(rows.slice(0, 1), ("key", "value", "timestamp"))) == 1
"""
JSON = """
import pyarrow
from tiered_stream.formats.json.json_decoder import JsonDecoder
decoder = JsonDecoder(pyarrow.struct([("a", pyarrow.list_(pyarrow.string()))]))
assert decoder.decode(pyarrow.array([b'{"a":["b"]}'])).column.to_pylist() == [{"a": ["b"]}]
"""
AVRO = """
from tiered_stream.formats.avro.avro_decoder import AvroDecoder
from tiered_stream.formats.avro.avro_schema import parse_avro_schema
schema = parse_avro_schema('{"type": "array", "items": ["null", "string"]}')
decoder = AvroDecoder(schema, schema)
assert decoder.decode(pyarrow.array([bytes([2, 2, 2, 98, 0])])).column.to_pylist() == [["b"]]
"""
SCAN = """
from tiered_stream.records.value_scan import scan_values
assert len(list(scan_values(record_batch([Record(b"k", b"v")]), {bytes(16): "t"}))) == 1
"""
PROTOBUF = """
from google.protobuf import descriptor_pb2
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder
message = descriptor_pb2.DescriptorProto(name="M")
message.field.add(name="a", number=1, type=5, label=3)
file = descriptor_pb2.FileDescriptorProto(name="m.proto", message_type=[message])
decoder = ProtobufDecoder(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "M")
assert decoder.decode(pyarrow.array([bytes([8, 2])])).column.to_pylist() == [{"a": [2]}]
"""
WARM = "from tiered_stream.cli import app; app(['warm'])"


@pytest.mark.slow
def test_a_packed_environment_that_was_warmed_compiles_nothing(tmp_path: Path) -> None:
    packed = ship(tmp_path / "packed")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    warmed = run(packed, WARM, environment)
    kernels = packed / "tiered_stream" / "records" / "kernel_cache"
    said = f"the decoder's kernels are compiled in {kernels}, and decode 1 record"
    assert (warmed.returncode, warmed.stdout.replace("\n", "")) == (0, said), warmed.stderr
    written = compiled_files(tmp_path)
    assert written and {path.parts[:4] for path in written} == {("packed", "tiered_stream", "records", "kernel_cache")}
    moved = packed.rename(tmp_path / "unpacked")
    decoded = run(moved, DECODE + HASH + SCAN + JSON + AVRO + PROTOBUF, environment)
    assert (decoded.returncode, decoded.stdout.split()[0]) == (0, "1"), decoded.stderr
    assert compiled_files(moved) == {path.relative_to("packed"): at for path, at in written.items()}
    assert compiled_files(tmp_path / "cache") == {}


def test_an_installation_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(compiled, "packaged_folder", lambda: tmp_path / "file")
    ended = CliRunner().invoke(app, ["warm"])
    assert ended.exit_code == 1
    assert f"{tmp_path}/file: Not a directory" in ended.output
