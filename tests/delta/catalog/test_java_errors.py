"""Errors of the JVM are told by their Java classes, in whichever Python class they come."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, java_classes, java_exception, spark_errors
from tiered_stream.errors import TableError


def test_an_error_that_pyspark_knows_has_the_classes_of_java(spark: SparkSession) -> None:
    with pytest.raises(JAVA_ERRORS) as caught:
        java(spark).java.lang.Integer.parseInt("ten")
    assert isinstance(caught.value, CapturedException)
    assert {"java.lang.NumberFormatException", "java.lang.IllegalArgumentException"} <= java_classes(caught.value)


def test_an_error_that_it_does_not_know_has_them_too(spark: SparkSession) -> None:
    with pytest.raises(JAVA_ERRORS) as caught:
        java(spark).java.util.ArrayList().get(3)
    assert isinstance(caught.value, Py4JJavaError)
    assert "java.lang.IndexOutOfBoundsException" in java_classes(caught.value)


def test_causes_count(spark: SparkSession) -> None:
    jvm = java(spark)
    cause = jvm.java.nio.file.AccessDeniedException("s3a://lake/orders")
    with pytest.raises(JAVA_ERRORS) as caught:
        jvm.java.util.concurrent.CompletableFuture.failedFuture(cause).get()
    assert "java.nio.file.AccessDeniedException" in java_classes(caught.value)


def test_one_of_which_only_the_text_was_kept_has_no_classes(spark: SparkSession) -> None:
    error = CapturedException("a conflict", "no stack")
    assert (java_exception(error), java_classes(error)) == (None, set())


def test_the_table_and_the_first_line_are_said(spark: SparkSession) -> None:
    with pytest.raises(TableError) as caught, spark_errors("orders", "read"):
        java(spark).java.lang.Integer.parseInt("ten")
    assert str(caught.value) == 'the table orders cannot be read by Spark: For input string: "ten"'


def test_the_reason_is_this_packages_error_in_a_task() -> None:
    lines = ["An exception was thrown from the Python worker", "Traceback", "tiered_stream.errors.TableError: offset 7"]
    with pytest.raises(TableError, match="orders.*offset 7"), spark_errors("orders", "read"):
        raise PySparkException("\n".join(lines))


def java(spark: SparkSession) -> Any:
    return spark._jvm
