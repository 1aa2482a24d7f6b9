"""Drawn `.proto` files: no column is lost, and no value is another one than protobuf's Python reads."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.formats.landed import comparable, landed
from tests.formats.protobuf_cases import SYNTAXES, WRITER, Files, classes, in_columns, made
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto

FILES = 10
"""Files that are compiled at once."""
REFUSED = {
    "Order next = 900;": "holds itself", "google.protobuf.Struct any = 900;": "holds itself",
    "group Old = 900 { optional int32 a = 1; }": "is a group",
    "Line line = 900 [features.message_encoding = DELIMITED];": "is a group",
}  # fmt: skip


@given(st.integers(0, 2**32))
@settings(max_examples=examples(200 // FILES), deadline=None)
def test_no_column_of_a_drawn_file_is_lost_and_no_value_is_changed(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    files, refused = dict[str, str](), dict[int, str]()
    for at in range(FILES):
        syntax = random.choice([*SYNTAXES])
        drawn, more = Files(random, syntax), ""
        if random.random() < 0.2:
            own = {"proto2": (0, 1, 2), "proto3": (0, 1), "2023": (0, 1, 3)}[syntax]
            more, refused[at] = [*REFUSED.items()][random.choice(own)]
        text = drawn.text("reader", f"{drawn.optional}{more}" if more else "")
        files |= {f"{at}.proto": text.replace("reader", f"r{at}"),
                  f"w{at}.proto": text.replace("reader", f"w{at}").replace(*WRITER[0]).replace(*WRITER[1])}  # fmt: skip
    descriptors = compiled_proto(files)
    path = tmp_path_factory.mktemp("drawn") / "all.desc"
    path.write_bytes(descriptors)
    for at in range(FILES):
        _compare(random, path, descriptors, at, refused.get(at))


def _compare(random: Random, path: Path, descriptors: bytes, at: int, refused: str | None) -> None:
    reader, writer = classes(descriptors, f"r{at}.Order", f"w{at}.Order").values()
    contents = [made(random, writer()).SerializePartialToString() for _ in range(10)]
    contents += [one + other for one, other in itertools.pairwise(contents)]
    given = {"value_format": "protobuf", "value_schema": str(path), "value_message": f"r{at}.Order"}
    if refused is not None:
        with pytest.raises(ConfigurationError, match=refused):
            landed(contents, **given)
        return
    messages = [reader.FromString(each) for each in contents]
    rows, reasons = landed(contents, **given)
    lacking = {at for at, each in enumerate(messages) if not each.IsInitialized()}
    assert reasons.keys() == lacking, (reasons, lacking, messages)
    expected = [in_columns(each) for each in messages if each.IsInitialized()]
    # Parquet has no rows without columns, and Delta has no such table.
    assert comparable(rows) == comparable(expected if any(expected) else [])
