"""Hadoop's settings in a session, and the settings of Hadoop's file system for one object store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from tiered_stream.delta.requirements.writer_requirements import OFF, Handling, Kind, find_requirement
from tiered_stream.delta.settings.ingest_settings import TableStorage
from tiered_stream.errors import ConfigurationError

_PORTS = {"http": 80, "https": 443}
_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu")
_WRITES = (
    "acl", "bucket-key", "canned", "checksum", "class", "cse", "encod", "encrypt", "grant", "header", "hold", "kms",
    "lock", "metadata", "requester", "retention", "sign", "sse", "tag", "upload",
)  # fmt: skip
"""Words in the name of an unknown setting that suggest that it sets a requirement for writers.

A setting that requires nothing of writers needs an entry (`Handling.NOTHING`) only if its name has such a word.
"""


class NotForTasksError(Exception):
    """Error for a setting of Spark's session that tasks cannot follow when they write a table's files without Spark.

    The message names the setting.
    """


class NoCredentialsError(ConfigurationError):
    """Error for a session that has no credentials for the bucket or container, so that Spark has none either."""


@dataclass(frozen=True, slots=True)
class HadoopSettings:
    """Functions that read and change Hadoop's settings in one Spark session.

    `get` and `password` call `get` and `getPassword` of Hadoop's `Configuration`.
    """

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


class SessionStore(ABC):
    """Bucket or container, with the settings in Spark's session by which Hadoop's file system reaches it.

    Tasks that write a table's files themselves do not use Hadoop, but must reach the store in the same way as Spark.

    Args:
        uri: URI of a folder in the store.
    """

    prefix: ClassVar[str]
    """Prefix of the settings' full names, such as `fs.s3a.`. Short names do not have the prefix."""
    connector = ""
    """Java class of Hadoop's file system for the store; empty: there is none for the URI's scheme."""
    own_settings = ""
    """Text for errors that names the job's settings for credentials, which replace the session's credentials."""

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        parts = urlsplit(uri)
        self.hadoop, self.uri, self.scheme, self.bucket = hadoop, uri, parts.scheme, parts.netloc

    @property
    def has_connector(self) -> bool:
        """True if Spark has a file system for the store on its class path."""
        return bool(self.connector) and self.hadoop.has_class(self.connector)

    def keys(self, name: str) -> Iterable[str]:
        """Return the full names of the settings for the short name `name`. The first setting that is set counts."""
        return (self.prefix + name,)

    def secret_keys(self, name: str) -> Iterable[str]:
        """Return the full names of the settings for the secret `name`. The first setting that is not empty counts."""
        return self.keys(name)

    def text(self, name: str) -> str | None:
        """Return the value of the setting with the short name `name`, or None if it is not set."""
        return next((value.strip() for key in self.keys(name) if (value := self.hadoop.get(key)) is not None), None)

    def secret(self, name: str) -> str | None:
        """Return the value of the secret with the short name `name`, or None if it is not set or is empty.

        Hadoop also looks for the secret in its credential files.
        """
        values = (self.hadoop.password(key) for key in self.secret_keys(name))
        return next((value.strip() for value in values if value), None) or None

    def is_on(self, name: str) -> bool:
        """Return whether the value of the setting with the short name `name` is `true`."""
        return (self.text(name) or "").lower() == "true"

    def own_names(self) -> Collection[str]:
        """Return the short names of the settings in the session that apply to the store."""
        return sorted(self.hadoop.names_after(self.prefix))

    def check_supported(self) -> None:
        """Check that no setting requires something of writers that tasks do not do.

        An unknown setting counts as requiring something if its name suggests it (`may_concern_writers`).

        Raises:
            NotForTasksError: a setting requires something that tasks do not do.
        """
        for name in self.own_names():
            requirement = find_requirement(Kind.SESSION, self.prefix + name)
            if requirement is None and may_concern_writers(name):
                off, why = OFF, "is not known here, and may be for writers"
            elif requirement is not None and requirement.handling is Handling.SPARK_LANE:
                off, why = requirement.off, "tasks that write files themselves do not follow"
            else:
                continue
            if (self.text(name) or self.secret(name) or "").lower() not in off:
                raise NotForTasksError(f"{self.prefix}{name} is set, which {why}")

    def unusable(self, why: str) -> NotForTasksError:
        """Return the error for credentials that tasks cannot use; `why` is the reason, as a clause."""
        return NotForTasksError(f"{why}: for tasks that write files themselves, set {self.own_settings}")

    def find(self, own: TableStorage) -> tuple[TableStorage, str | None]:
        """Return the settings by which tasks access the store, and a text that says why tasks cannot write to it.

        `own` is the job's own access (`ingest.storage.*`), which takes precedence over the session's settings. The text
        is None if no setting of the session keeps tasks from writing. If there is a text, the settings are the result
        of `place`, by which the driver can still read the table's log.

        Raises:
            ConfigurationError: a setting is malformed, `ingest.storage.*` name a different store than the session, or
                there are no credentials.
            TableAccessError: the region of a bucket cannot be found.
        """
        try:
            return self.access(own), None
        except NotForTasksError as error:
            return self.place(own), str(error)

    def place(self, own: TableStorage) -> TableStorage:
        """Return `own`, completed by the session's settings for the store's address, but not for credentials.

        The default returns `own` unchanged.
        """
        return own

    @abstractmethod
    def access(self, own: TableStorage) -> TableStorage:
        """Return the settings by which tasks access the store: `own`, completed by the session's settings.

        Raises:
            NotForTasksError: tasks would access the store in another way than Spark.
            ConfigurationError: as in `find`.
            TableAccessError: as in `find`.
        """


def check_same_store(
    setting: str, own_url: str | None, session_url: str, table: str, fix: str = "set both to the same service"
) -> None:
    """Check that the job's own settings and the session lead to the same service.

    Args:
        setting: name of the job's setting.
        own_url: value of this setting; None: it is not set.
        session_url: URL of the service that the session uses.
        table: bucket or container of the table, in words.
        fix: advice for the error.

    Raises:
        ConfigurationError: the services differ.
    """
    if own_url is not None and _place_of(own_url) != _place_of(session_url):
        raise ConfigurationError(
            f"{setting} is {own_url}, but Spark's session reaches the {table} at {session_url}: {fix}, or remove "
            f"{setting}"
        )


def _place_of(url: str) -> tuple[str, int | None, str]:
    """Return host, port and path of a URL, for a comparison of services.

    All names of this machine are `localhost`, and all hosts of AWS are one. An emulator of Azure's has the account in
    the path.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    if host.endswith(_AWS):
        host, port = _AWS[0], None
    is_local = host.startswith("127.") or host.endswith(".localhost")
    return "localhost" if is_local else host, port, parts.path.strip("/")
