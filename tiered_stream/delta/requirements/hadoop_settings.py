"""Hadoop's settings in a session, and checks of the settings of one object store's file system."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, find_entry
from tiered_stream.errors import ConfigurationError

_PORTS = {"http": 80, "https": 443}
_WRITES = (
    "acl", "bucket-key", "canned", "checksum", "class", "cse", "encod", "encrypt", "grant", "header", "hold", "kms",
    "lock", "metadata", "requester", "retention", "sign", "sse", "tag", "upload",
)  # fmt: skip
"""Words in the name of an unknown setting that suggest that it sets a requirement for writers."""


class NotForTasksError(Exception):
    """Error for a setting of the session that tasks do not follow; the message names the setting."""


class NoCredentialsError(ConfigurationError):
    """Error for a session that has no credentials for the bucket or container, so that Spark has none either."""


@dataclass(frozen=True, slots=True)
class HadoopSettings:
    """Hadoop's settings. `get` and `password` call `get` and `getPassword` of Hadoop's `Configuration`."""

    get: Callable[[str], str | None]
    password: Callable[[str], str | None]
    environment: Callable[[str], str | None]
    """Function that reads an environment variable of the driver's JVM."""
    names_after: Callable[[str], Collection[str]]
    """Function that returns the names of all settings with a prefix, without the prefix."""
    has_class: Callable[[str], bool]
    """Function that returns whether a Java class is on Spark's class path."""
    set: Callable[[str, str], None]
    """Function that sets a setting by name, for later calls of `get` and `password`."""


def hadoop_settings(spark: SparkSession) -> HadoopSettings:
    """Read Hadoop's settings from the session as they are now."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    assert spark._jvm is not None
    return HadoopSettings(
        get=conf.get,
        password=lambda name: "".join(conf.getPassword(name) or ()),
        environment=spark._jvm.java.lang.System.getenv,
        names_after=lambda prefix: _names(conf.getPropsWithPrefix(prefix).keySet().toString()),
        has_class=lambda name: conf.getClassByNameOrNull(name) is not None,
        set=conf.set,
    )


def _names(listed: str) -> tuple[str, ...]:
    """Split the text of a Java set of names (`[a, b]`) into the names, to save a call to the JVM for each name."""
    return tuple(filter(None, listed.strip("[]").split(", ")))


def may_concern_writers(name: str) -> bool:
    """Return whether the name of an unknown setting contains a word that suggests a requirement for writers."""
    return any(word in name.lower() for word in _WRITES)


def check_supported(
    known: Iterable[Requirement], prefix: str, names: Iterable[str], value_of: Callable[[str], str | None]
) -> None:
    """Check that no setting requires something of writers that tasks do not do.

    An unknown setting is such a setting if its name suggests it (`may_concern_writers`).

    Args:
        known: entries of the list of requirements for this prefix.
        prefix: prefix of the settings, such as `fs.s3a.`.
        names: names of the settings that apply to the table, without the prefix.
        value_of: function that returns a setting's value, by name without the prefix.

    Raises:
        NotForTasksError: there is such a setting.
    """
    for name in names:
        requirement = find_entry(known, Kind.SESSION, prefix + name)
        if requirement is None and may_concern_writers(name):
            off, why = OFF, "is not known here, and may be for writers"
        elif requirement is not None and requirement.handling is Handling.SPARK_LANE:
            off, why = requirement.off, "tasks that write files themselves do not follow"
        else:
            continue
        if (value_of(name) or "").lower() not in off:
            raise NotForTasksError(f"{prefix}{name} is set, which {why}")


def check_same_store(setting: str, own_url: str | None, session_url: str, table: str) -> None:
    """Check that the job's own settings and the session lead to the same service.

    Args:
        setting: name of the job's setting.
        own_url: value of this setting; None: it is not set.
        session_url: URL of the service that the session uses.
        table: bucket or container of the table, in words.

    Raises:
        ConfigurationError: they lead to different services.
    """
    if own_url is not None and _place_of(own_url) != _place_of(session_url):
        raise ConfigurationError(
            f"{setting} is {own_url}, but Spark's session reaches the {table} at {session_url}: set both to the same "
            f"service, or remove {setting}"
        )


def _place_of(url: str) -> tuple[tuple[str, int | None], str]:
    return host_and_port(url), urlsplit(url).path.strip("/")  # an emulator of Azure's has the account in the path


def host_and_port(url: str) -> tuple[str, int | None]:
    """Return host and port of a URL, for a comparison of services. All names of this machine are `localhost`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_local = host.startswith("127.") or host.endswith(".localhost")
    return "localhost" if is_local else host, parts.port or _PORTS.get(parts.scheme)
