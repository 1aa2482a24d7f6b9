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
"""By the name of a module: the package that has the module, and the extra that installs the package."""
_OTHER_WAYS = {"spark": ", or use the Python of the Spark that your platform brings"}


@contextmanager
def naming_extras(user: str) -> Iterator[None]:
    """Replace the error for a missing package of an extra, raised in the block, by an error that names the extra.

    Args:
        user: user of the package, for the error, such as "this command".

    Raises:
        ConfigurationError: a package is missing that an extra installs.
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
        user: user of the module, for the error.

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
