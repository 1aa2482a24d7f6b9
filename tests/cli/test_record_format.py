"""How `cat` prints a record."""

from __future__ import annotations

import orjson
import pytest

from tiered_stream.cli.record_format import as_json, by_template
from tiered_stream.errors import ConfigurationError

RECORD = {
    "topic": "orders", "partition": 3, "offset": 17, "timestamp": 1_700_000_000_123, "timestampType": 0,
    "key": b"k1", "value": b"\xff\x00", "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
}  # fmt: skip
EMPTY = {**RECORD, "key": None, "value": None, "headers": None}


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        (r"%s\n", b"\xff\x00\n"),
        (r"%t-%p@%o %T", b"orders-3@17 1700000000123"),
        (r"%k(%K)%S", b"k1(2)2"),
        (r"100 %% of \\%h\t\r\0", b"100 % of \\a=1,b=NULL\t\r\0"),
        ("", b""),
    ],
)
def test_a_template_says_what_is_printed(template: str, printed: bytes) -> None:
    assert by_template(template)(RECORD) == printed


def test_what_a_record_does_not_have_is_null() -> None:
    assert by_template("%k %K %s %S [%h]")(EMPTY) == b"NULL -1 NULL -1 []"


@pytest.mark.parametrize("template", ["%x", "100 %", r"\q", "\\", "%é"])
def test_a_template_that_nobody_understands_is_refused(template: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        by_template(template)
    assert repr(template.removeprefix("100 ")) in str(refused.value)


def test_json_has_text_where_bytes_are_text() -> None:
    printed = as_json(RECORD)
    assert printed.endswith(b"}\n")
    assert orjson.loads(printed) == {
        **RECORD, "key": "k1", "value": {"base64": "/wA="},
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }  # fmt: skip
    assert orjson.loads(as_json(EMPTY)) == EMPTY
