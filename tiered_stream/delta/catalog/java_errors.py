"""Inspection and translation of the JVM's errors, which reach Python in two classes.

py4j raises `Py4JJavaError`. PySpark turns the errors that it knows into `CapturedException`. If any code in the process
has imported `delta.tables`, such as a user's program, Delta's conflicts become `CapturedException` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from tiered_stream.errors import TableError, TieredStreamError

JAVA_ERRORS = (Py4JJavaError, CapturedException)
_CONFLICT = "org.apache.spark.sql.delta.DeltaConcurrentModificationException"
"""Java's base class of all conflicts between Delta commits."""
_CONFLICTS_IN_PYTHON = "delta.exceptions"
_INTERRUPTED = {"java.lang.InterruptedException", "java.nio.channels.ClosedByInterruptException"}
_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|\bJob \d+ cancelled\b")
"""Pattern in Spark's error for a cancelled job. The mere word "cancelled" may come from a table's CHECK constraint."""
_RAISED_CLASS, _RAISED = "org.apache.spark.SparkRuntimeException", "USER_RAISED_EXCEPTION"
"""Java class and error class of SQL's `raise_error` (Spark: `QueryExecutionErrors.raiseError`)."""


def java_exception(error: Py4JJavaError | CapturedException) -> Any:
    """Return the Java exception that caused the Python error, or None if PySpark kept only the exception's text."""
    return error.java_exception if isinstance(error, Py4JJavaError) else error._origin


def _causes(error: Py4JJavaError | CapturedException) -> Iterator[Any]:
    """Yield the Java exception of the Python error, and then the cause of each Java exception."""
    exception = java_exception(error)
    while exception is not None:
        yield exception
        exception = exception.getCause()


def java_classes(error: Py4JJavaError | CapturedException) -> set[str]:
    """Return the full names of the Java classes of the error's Java exception and of its causes, with all superclasses.

    The set is empty if the Python error has no Java exception.
    """
    names: set[str] = set()
    for exception in _causes(error):
        kind = exception.getClass()
        while kind is not None:
            names.add(kind.getName())
            kind = kind.getSuperclass()
    return names


def is_stopped(error: Py4JJavaError | CapturedException) -> bool:
    """Return whether the error was raised because a query is being stopped.

    Spark then interrupts the query's thread, or cancels the query's job.
    """
    return bool(java_classes(error) & _INTERRUPTED) or _CANCELLED.search(first_line(error)) is not None


def raised_text(error: Py4JJavaError | CapturedException) -> str | None:
    """Return the text that SQL's function `raise_error` got, if this function caused the error; otherwise None.

    The error's own text does not show the cause, because Spark also prints a call of `raise_error` in errors about a
    plan that it cannot analyze.
    """
    for exception in _causes(error):
        if exception.getClass().getName() == _RAISED_CLASS and exception.getCondition() == _RAISED:
            return str(exception.getMessageParameters()["errorMessage"])
    return None


def is_conflict(error: Py4JJavaError | CapturedException) -> bool:
    """Return whether the error says that Delta refused a commit because another commit came first.

    If the result is true, another attempt at the commit may succeed.
    """
    # delta-spark's own Python classes of conflicts do not keep the Java exception.
    return type(error).__module__.startswith(_CONFLICTS_IN_PYTHON) or _CONFLICT in java_classes(error)


@contextmanager
def spark_errors(table: str, done: str) -> Iterator[None]:
    """Turn errors of Spark and of the JVM in the `with` block into TableError.

    The error's text is "the table {table} cannot be {done} by Spark", so `done` is a participle such as "opened". The
    reason follows: the message of this package's error in a task, otherwise the first line of Spark's message.
    """
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        name, message = own_error(str(error))
        why = message if name else first_line(error)
        raise TableError(f"the table {table} cannot be {done} by Spark: {why}") from error


def own_error(text: str) -> tuple[str, str]:
    """Return the class name and the message of this package's error in `text`, the text of an error of Spark.

    Spark raises such an error if Python code of this package fails in a task or in a planner. If `text` contains no
    error of this package, return an empty class name and the first line of `text`.
    """
    lines = [line.strip() for line in text.strip().splitlines()] or [""]
    own_lines = [line for line in lines if line.startswith(TieredStreamError.__module__)]
    name, _, message = own_lines[-1].partition(": ") if own_lines else ("", "", lines[0])
    return name, message


def first_line(error: Py4JJavaError | PySparkException) -> str:
    """Return the first line of the error's message, without the JVM's stack trace."""
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return str(text).strip().partition("\n")[0]
