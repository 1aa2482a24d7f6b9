"""Errors of the JVM, in whichever Python class they come.

py4j raises `Py4JJavaError`. PySpark turns what it knows into a `CapturedException`; delta-spark has it do the same with
Delta's conflicts as soon as anything in the process imports `delta.tables`, as users' own programs do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from tiered_stream.errors import TableError

JAVA_ERRORS = (Py4JJavaError, CapturedException)
_CONFLICT = "org.apache.spark.sql.delta.DeltaConcurrentModificationException"
"""The Java class from which all of Delta's conflicts are derived."""
_CONFLICTS_IN_PYTHON = "delta.exceptions"


def java_exception(error: Py4JJavaError | CapturedException) -> Any:
    """The exception in the JVM; None where PySpark kept its text only."""
    return error.java_exception if isinstance(error, Py4JJavaError) else error._origin


def java_classes(error: Py4JJavaError | CapturedException) -> set[str]:
    """Java's names of the error's class and of what caused it, with their parents."""
    found: set[str] = set()
    exception = java_exception(error)
    while exception is not None:
        kind = exception.getClass()
        while kind is not None:
            found.add(kind.getName())
            kind = kind.getSuperclass()
        exception = exception.getCause()
    return found


def is_conflict(error: Py4JJavaError | CapturedException) -> bool:
    """Return whether Delta refused a commit because another commit came first: another attempt may succeed."""
    # delta-spark's own Python classes of conflicts have lost the Java exception.
    return type(error).__module__.startswith(_CONFLICTS_IN_PYTHON) or _CONFLICT in java_classes(error)


@contextmanager
def spark_errors(table: str, done: str) -> Iterator[None]:
    """Errors of Spark and of what it calls as `TableError`: the table could not be `done`."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise TableError(f"the table {table} cannot be {done} by Spark: {first_line(error)}") from error


def first_line(error: Py4JJavaError | PySparkException) -> str:
    """What Spark or Java says, without the JVM's stack."""
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return str(text).strip().partition("\n")[0]
