"""Errors for missing packages that an extra of `tiered-stream` installs, such as pyspark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tiered_stream.errors import ConfigurationError

_EXTRAS = {
    "pyspark": ("pyspark", "spark"),
    "py4j": ("py4j", "spark"),
    "pandas": ("pandas", "spark"),
    "delta": ("delta-spark", "delta"),
    "deltalake": ("deltalake", "delta"),
    "google": ("protobuf", "formats"),
    "google.protobuf": ("protobuf", "formats"),
    "hdfs_native": ("hdfs-native", "hdfs"),
    "Crypto": ("pycryptodome", "aiven"),
    "confluent_kafka": ("confluent-kafka", "kafka-sink"),
    "gssapi": ("gssapi", "kerberos"),
}
"""Package that has a module, and the extra of `tiered-stream` that installs the package, by the module's name."""
_OTHER_WAYS = {"spark": ", or use the Python of the Spark that your platform brings"}


@contextmanager
def naming_extras(user: str) -> Iterator[None]:
    """Replace a ModuleNotFoundError that the `with` block raises by an error that names the extra to install.

    A ModuleNotFoundError for a module of no extra passes unchanged.

    Args:
        user: name of the code that needs the module, for the error's message, such as "this command".

    Raises:
        ConfigurationError: the block needs a module of an extra that is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise _missing(error.name, user) from error


def check_installed(module: str, user: str) -> None:
    """Check that a module of an extra is installed, without an import of the module.

    Args:
        module: name of a module that an extra of `tiered-stream` installs, such as `pandas`.
        user: name of the code that needs the module, for the error's message, such as "a redrive".

    Raises:
        ConfigurationError: the module is not installed.
    """
    if find_spec(module) is None:
        raise _missing(module, user)


def _missing(module: str, user: str) -> ConfigurationError:
    package, extra = _EXTRAS[module]
    return ConfigurationError(
        f"{user} needs the package {package}, which is not installed: pip install 'tiered-stream[{extra}]'"
        f"{_OTHER_WAYS.get(extra, '')}"
    )
