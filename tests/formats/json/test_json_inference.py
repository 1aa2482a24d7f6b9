"""A sample's type is the one that Spark infers."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tests.formats.json_documents import document, make_kind
from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.formats.json import json_inference
from tiered_stream.formats.json.json_decoder import JsonDecoder
from tiered_stream.formats.json.json_inference import infer_json
from tiered_stream.formats.json.json_text import Fields, parse_json


def list_of(kind: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("element", kind))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1"], pa.int64()),
        (["1", "null"], pa.int64()),
        (["1", "1.5"], pa.float64()),
        (["9223372036854775807", "9223372036854775808"], pa.decimal128(20, 0)),
        (["9" * 38], pa.decimal128(38, 0)),
        (["9" * 38, "1.5"], pa.float64()),
        (["9" * 39], pa.float64()),
        (["1e400", "NaN"], pa.float64()),
        (["true"], pa.bool_()),
        (["true", "1"], pa.string()),
        (['"2020-01-02"'], pa.string()),
        (["null"], pa.string()),
        (['""'], pa.string()),
        (["[]"], list_of(pa.string())),
        (["[1]", "[null, 2.5]"], list_of(pa.float64())),
        (["[1]", "1"], pa.string()),
        (['{"b":1}', '{"a":"x"}'], pa.struct([("a", pa.string()), ("b", pa.int64())])),
        (['[{"a":1},{"b":[]}]'], list_of(pa.struct([("a", pa.int64()), ("b", list_of(pa.string()))]))),
    ],
)
def test_a_field_has_the_type_that_all_its_values_fit(values: list[str], kind: pa.DataType) -> None:
    documents = [f'{{"x":{value}}}'.encode() for value in values]
    assert infer_json(documents) == pa.struct([("x", kind)])
    assert infer_json([*documents[::-1], None, b"", b"{", b"1", b'[{"y":1}]', b"{}"]) == pa.struct([("x", kind)])
    assert not JsonDecoder(infer_json(documents)).decode(pa.array(documents, pa.binary())).reasons


@pytest.mark.parametrize("form", ['{{"x":[{}]}}', '{{"x":{}}}'])
def test_time_does_not_grow_with_the_square_of_the_number_of_fields(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    struct_of = json_inference._struct_of

    def counted(fields: dict[str, pa.DataType]) -> pa.StructType:
        sizes.append(len(fields))
        return struct_of(fields)

    monkeypatch.setattr(json_inference, "_struct_of", counted)
    separator = "," if "[" in form else ',"x":'
    document = form.format(separator.join(f'{{"k{at}":0}}' for at in range(256)))
    kind = pa.struct([(name, pa.int64()) for name in sorted(f"k{at}" for at in range(256))])
    assert infer_json([document.encode()]).field("x").type in (kind, list_of(kind))
    assert sum(sizes) < 256 * 12


def test_an_empty_string_says_nothing_of_a_type() -> None:
    assert infer_json([b'{"x":""}', b'{"x":1}']) == pa.struct([("x", pa.int64())])


def test_a_field_whose_name_has_half_a_surrogate_pair_is_left_out() -> None:
    document = b'{"x":{"a\\udc00":1,"\\ud83d\\ude00":2},"\\ud800":3,"\\udbff\\ue000":[{"y":4}]}'
    assert infer_json([document, b'{"\\udfff":5}']) == pa.struct([("x", pa.struct([("😀", pa.int64())]))])


@pytest.mark.parametrize("values", [[], [None], [b"1"], [b"{}"], [b'{"x":{}}'], [b'{"":1}'], [b'{"\\ud800":1}']])
def test_a_sample_without_a_field_is_refused(values: list[bytes | None]) -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        infer_json(values)


def is_plain_object(value: bytes) -> bool:
    """Whether no key comes twice: Spark then infers a column twice."""
    try:
        return type(found := parse_json(value)) is Fields and not _has_doubles(found)
    except CorruptDataError:
        return False


def _has_doubles(value: Any) -> bool:
    if type(value) is Fields:
        return len(dict(value)) < len(value) or any(_has_doubles(each) for _, each in value)
    return isinstance(value, list) and any(map(_has_doubles, value))


def lines(kind: pa.DataType, name: str = "") -> list[str]:
    """A type, for a comparison that says what differs."""
    if pa.types.is_struct(kind):
        return [line for each in kind for line in lines(each.type, f"{name}.{each.name}")] or [f"{name} struct"]
    return lines(kind.value_type, f"{name}[]") if pa.types.is_list(kind) else [f"{name} {kind}"]


@pytest.mark.stack
@pytest.mark.parametrize("seed", range(20))
def test_it_is_sparks_type(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    kind = make_kind(random)
    documents = [each for each in (document(random, kind) for _ in range(5 * seed + 1)) if is_plain_object(each)]
    texts = ['{"a":1}', *(each.decode() for each in documents)]
    schema = spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema
    assert lines(infer_json([each.encode() for each in texts])) == lines(pa.struct(list(to_arrow_schema(schema))))
