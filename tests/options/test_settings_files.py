from __future__ import annotations

import tempfile
from pathlib import Path

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.settings_files import (
    file_settings,
    origin_of,
    parse_assignments,
    read_settings,
    read_spark_properties,
)

ROOT = Path(__file__).parents[2]


JAVA_TEXT = st.characters(exclude_categories=["Cs"])
"""All but halves of surrogate pairs, which no file in UTF-8 can hold."""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "job.properties"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_gives_names_in_their_case_and_values_as_they_are(tmp_path: Path) -> None:
    text = """
# a comment
! another
subscribe = orders
startingOffsets={"orders":{"0":5}}
kafka.sasl.jaas.config=org.apache.Login required username="u" password="p=#%(x)s";
rsm.config.storage.s3.bucket.name=b
empty=
"""
    assert read_settings(written(tmp_path, text)) == {
        "subscribe": "orders",
        "startingOffsets": '{"orders":{"0":5}}',
        "kafka.sasl.jaas.config": 'org.apache.Login required username="u" password="p=#%(x)s";',
        "rsm.config.storage.s3.bucket.name": "b",
        "empty": "",
    }


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("a=1\r\n  b=2\r\n\r\n\tc=3\r\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n  # 2,\\\n  3\nb=Login \\\n    u \\\n\n", {"a": "1,# 2,3", "b": "Login u "}),
        *((f"a.b{separator}c = d:e", {"a.b": "c = d:e"}) for separator in ("=", ":", " ", " = ", "\t:\t")),
        ("subscribe=t\n".encode("utf-8-sig"), {"subscribe": "t"}),
    ],
)
def test_lines_are_read_as_by_java(tmp_path: Path, text: str | bytes, settings: dict[str, str]) -> None:
    assert read_settings(written(tmp_path, text)) == settings


def test_the_example_that_users_copy_can_be_read() -> None:
    assert read_settings(ROOT / "conf" / "ingest_to_delta.properties")["subscribe"] == "orders"


def test_a_name_that_is_there_twice_is_refused_without_its_values(tmp_path: Path) -> None:
    path = written(tmp_path, "a=1\n\n#\na=secret\n")
    with pytest.raises(ConfigurationError, match=f"{path} .*a twice") as refused:
        read_settings(path)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["startingoffsets", "STARTINGOFFSETS"])
def test_a_name_that_is_there_twice_in_different_case_is_refused(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other.properties"
    other.write_text(f"{name}=latest\n")
    with pytest.raises(ConfigurationError, match=f"{other} .*{name}"):
        read_settings(written(tmp_path, "startingOffsets=earliest\n"), other)


def test_topics_and_table_properties_whose_names_differ_by_case_are_different_settings(tmp_path: Path) -> None:
    names = ("ingest.topic.A.table", "ingest.topic.a.table", "ingest.tableProperty.A", "ingest.tableProperty.a")
    settings = dict.fromkeys(names, "/t")
    assert read_settings(written(tmp_path, javaproperties.dumps(settings))) == settings


def test_lines_are_counted_as_editors_count_them(tmp_path: Path) -> None:
    file = written(tmp_path, "a=1\f2\r\n# \x85 \u2028\r\nb=\\\n 3\nc=4\n")
    assert file_settings(file) == {"a": "1\f2", "b": "3", "c": "4"}
    assert [origin_of(name) for name in "abc"] == [f"{file}, line {line}" for line in (1, 3, 5)]


def test_a_malformed_escape_is_refused_without_showing_it(tmp_path: Path) -> None:
    path = written(tmp_path, "password=secret\\users\n")
    with pytest.raises(ConfigurationError, match=r"malformed .uxxxx escape") as refused:
        read_settings(path)
    assert "secret" not in str(refused.value)


@given(
    st.dictionaries(st.text(JAVA_TEXT, min_size=1), st.text(JAVA_TEXT), max_size=5).filter(
        lambda settings: len({name.lower() for name in settings}) == len(settings)
    )
)
def test_whatever_java_writes_comes_back(settings: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.properties")
        file.write_text(javaproperties.dumps(settings, timestamp=False), encoding="utf-8")
        assert read_settings(file) == settings


def test_what_java_itself_writes_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"pass word": " p=:#!\\w\u00e4\t\U0001f511", "path": "C:\\keys\\a b", "#no comment": "\\", "empty": ""}
    jvm = spark._jvm
    assert jvm is not None
    properties = jvm.java.util.Properties()
    for name, value in settings.items():
        properties.setProperty(name, value)
    stream = jvm.java.io.FileOutputStream(str(tmp_path / "job.properties"))
    properties.store(stream, None)
    stream.close()
    assert read_settings(tmp_path / "job.properties") == settings


def test_a_file_in_another_encoding_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"job\.properties .*UTF-8") as refused:
        read_settings(written(tmp_path, b"a=\xffsecret\n"))
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(("name", "reason"), [("missing", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{tmp_path / name} .*{reason}"):
        read_settings(tmp_path / name)


def test_an_assignment_is_cut_at_the_first_equals_sign() -> None:
    given = ["kafka.sasl.jaas.config=a=b=c", "empty="]
    assert parse_assignments(given, "--option") == {"kafka.sasl.jaas.config": "a=b=c", "empty": ""}
    assert parse_assignments(None, "--option") == {}


@pytest.mark.parametrize("text", ["name", "=value", ""])
def test_an_assignment_needs_a_name_and_a_value(text: str) -> None:
    for option in ("--option", "--spark-conf"):
        with pytest.raises(ConfigurationError, match=f"{option} .*name=value"):
            parse_assignments(["a=b", text], option)


def test_sparks_own_file_may_repeat_a_name_as_spark_takes_it(tmp_path: Path) -> None:
    file = written(tmp_path, b"spark.a=1 \t\nspark.b = x\\n\nspark.a 2 \n")
    assert read_spark_properties(file) == {"spark.a": "2", "spark.b": "x\n"}
    with pytest.raises(ConfigurationError, match=r"spark\.a twice"):
        read_settings(file)
