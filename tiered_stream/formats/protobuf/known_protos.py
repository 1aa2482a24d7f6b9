"""`.proto` files that a schema registry itself knows: schemas import them, but do not list them as references.

Confluent's registry bundles `confluent/*.proto` and `google/type/*.proto` (`ProtobufSchema.KNOWN_DEPENDENCIES`). Here
the compiler has `google/protobuf/*.proto`, and the package googleapis-common-protos has `google/type/*.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_META = """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
# ksqlDB and Connect annotate decimals with options of meta.proto, but import only this file. So its import is public.
_DECIMAL = """\
syntax = "proto3";
package confluent.type;
import public "confluent/meta.proto";
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
_VARIANT = """\
syntax = "proto3";
package confluent.type;
message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
"""
_OLD_DECIMAL = """\
syntax = "proto3";
import public "confluent/type/decimal.proto";
"""
_CONFLUENT = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _VARIANT,
    "confluent/types/decimal.proto": _OLD_DECIMAL,
}


def write_known_protos(folder: Path) -> None:
    """Write the known `.proto` files into an empty folder, under the names by which schemas import them."""
    for name, text in _CONFLUENT.items():
        _write(folder / name, text.encode())
    for file in _google_types():
        _write(folder / "google" / "type" / file.name, file.read_bytes())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _google_types() -> Iterator[Path]:
    found = find_spec("google.type")
    for folder in found.submodule_search_locations or () if found else ():
        yield from Path(folder).glob("*.proto")
