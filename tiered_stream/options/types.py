"""Classes that declare options and properties (`Option`, `KnownProperty`), and parsers of options' values.

A parser takes the text of a value, and returns the parsed value. It raises ValueError if the text is malformed. The
error's message, such as "must be true or false", follows the option's name and the text in the message to the user.

Numbers, booleans, durations and sizes are parsed as in Spark (Scala's `toInt`, `toLong`, `toBoolean`;
`JavaUtils.timeStringAsMs`, `JavaUtils.byteStringAsBytes`).
"""

from __future__ import annotations

import re
import warnings
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import nan
from typing import Any, Generic, NoReturn, TypeVar
from urllib.parse import SplitResult, urlsplit
from uuid import UUID

import orjson

from tiered_stream.model import REPORT_TOKEN_BYTES, ReportAddress, uuid_from_text

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""Columns of the source's rows; `headers` only with `includeHeaders`."""

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_INTEGER = re.compile(r"[+-]?\d{1,4000}")
_DURATION = re.compile(r"(-?[0-9]{1,4000})([a-z]*)")
_MINUTE, _HOUR = 60_000_000, 3_600_000_000
_MICROSECONDS = {
    "us": 1, "": 1000, "ms": 1000, "s": 1_000_000, "m": _MINUTE, "min": _MINUTE, "h": _HOUR, "d": 24 * _HOUR
}  # fmt: skip
_PYTHON_ONLY_GROUP = re.compile(r"(?<!\\)(?:\\\\)*\(\?[P(#aL]")
_NESTED_SET = re.compile(r"(?<!\\)(?:\\\\)*\[(?:[^\]\\]|\\.)*?\[")
_HOST_AND_PORT = re.compile(r"(?:[\w+.-]+://)?(?P<host>\[[\w:.%-]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
_REPORT_ADDRESS = re.compile(rf"(?P<place>[^\s,/]+)/(?P<token>[0-9a-f]{{{2 * REPORT_TOKEN_BYTES}}})")
_SIZE = re.compile(r"([0-9]{1,19})([kmgtp]?)b?")
_AZURE = ("abfs", "abfss", "wasb", "wasbs")
_SIZE_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


class Queries(Enum):
    """Kind of queries in which an option has an effect."""

    ALL = "all"
    STREAMING = "streaming"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """Declaration of an option.

    Args:
        name: the option's name, as the documentation writes it.
        parse: function that parses the text of a value, and raises ValueError if the text is malformed.
        default: the parsed value if the user does not give the option.
        shown: the default, as the documentation shows it.
        doc: the option's description in the documentation.
        queries: the kind of queries in which the option has an effect.
        secret: true if no message may show the value.
        internal: true if the documentation leaves the option out.
    """

    name: str
    parse: Callable[[str], T]
    default: T
    shown: str
    doc: str
    queries: Queries = Queries.ALL
    secret: bool = False
    internal: bool = False


def option(
    name: str,
    parse: Callable[[str], T],
    default: str,
    doc: str,
    queries: Queries = Queries.ALL,
    *,
    internal: bool = False,
) -> Option[T]:
    """Return the declaration of an option whose default is given as text, which is parsed like a user's text.

    The other arguments are the fields of `Option`.
    """
    return Option(name, parse, parse(default), default, doc, queries, internal=internal)


def optional(
    name: str, parse: Callable[[str], T], doc: str, queries: Queries = Queries.ALL, shown: str = "", **flags: bool
) -> Option[T | None]:
    """Return the declaration of an option whose default value is None.

    `shown` is the default in the documentation. `flags` are the fields `secret` and `internal` of `Option`, and the
    other arguments are its fields, too.
    """
    return Option(name, parse, None, shown, doc, queries, **flags)


def declared_in(module: Mapping[str, Any]) -> tuple[Option[Any], ...]:
    """Return all options that a module declares, in the order of their declarations.

    `module` has the module's global values by name, as `vars` returns them.
    """
    return tuple(value for value in module.values() if isinstance(value, Option))


class HiddenValueError(ValueError):
    """Error for a malformed value that may contain a secret, so error messages must not repeat the value."""


def trimmed(value: str) -> str:
    """Strip ASCII blanks and control characters, but no other Unicode blanks, as Java's `String.trim` does."""
    return value.strip(_JAVA_BLANKS)


def whole_number(value: str) -> int:
    """Parse a whole number as Java's `Long.parseLong` does, but with up to 4,000 digits.

    A sign is optional, digits may be of any script, and blanks are not allowed.

    Raises:
        ValueError: the text is not a whole number.
    """
    if not _INTEGER.fullmatch(value) or max(value) > "\uffff":
        raise ValueError("must be a whole number")
    return int(value)


def text(value: str) -> str:
    """Return the text without surrounding blanks. Raises ValueError if nothing is left."""
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def boolean(value: str) -> bool:
    """Parse `true` or `false`, without regard to case. Raises ValueError for any other text."""
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.lower() == "true"


def integer(minimum: int, maximum: int = LONG_MAX) -> Callable[[str], int]:
    """Return a parser of whole numbers from `minimum` to `maximum`, both inclusive. It raises ValueError for others."""
    return lambda value: _within(whole_number(value), minimum, maximum)


def fraction(minimum: float, maximum: float) -> Callable[[str], float]:
    """Return a parser of numbers from `minimum` to `maximum`, both inclusive. It raises ValueError for others."""

    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = nan
        if not minimum <= number <= maximum:
            raise ValueError(f"must be a number from {minimum} to {maximum}")
        return number

    return parse


def duration_ms(value: str) -> int:
    """Parse a duration in Spark's form (`500ms`, `30s`, `15m`, `2h`, `1d`), and return whole milliseconds.

    A number without a unit is in milliseconds. The duration may be negative. A result beyond 64 bits becomes the
    nearest number of 64 bits. Raises ValueError if the text is not a duration.
    """
    match = _DURATION.fullmatch(trimmed(value.lower()))
    if match is None or match[2] not in _MICROSECONDS:
        raise ValueError("must be a duration, e.g. 500ms, 30s, 15m, 2h or 1d")
    micros = _within(int(match[1]), LONG_MIN, LONG_MAX) * _MICROSECONDS[match[2]]
    milliseconds = abs(micros) // 1000
    return max(LONG_MIN, -milliseconds) if micros < 0 else min(LONG_MAX, milliseconds)


def byte_size(minimum: int, maximum: int = LONG_MAX) -> Callable[[str], int]:
    """Return a parser of sizes in Spark's form (`8388608`, `8m`, `8MB`), which returns bytes.

    Units are powers of 1024. The size must be from `minimum` to `maximum` bytes, both inclusive.
    """

    def parse(value: str) -> int:
        match = _SIZE.fullmatch(value.strip().lower())
        if match is None:
            raise ValueError("must be a size, e.g. 8388608, 8m or 1g")
        return _within(int(match[1]) << _SIZE_SHIFTS[match[2]], minimum, maximum)

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts only `words`, and returns the word as it is written in `words`.

    The text may be in any case, and may have blanks around it. The parser raises ValueError for any other text.
    """
    spelled = {word.lower(): word for word in words}

    def parse(value: str) -> str:
        if value.strip().lower() not in spelled:
            raise ValueError(f"must be one of {', '.join(words)}")
        return spelled[value.strip().lower()]

    return parse


def choice(words: type[E]) -> Callable[[str], E]:
    """Return a parser that takes a text and returns the member of the enum `words` whose value is this text.

    The text may be in any case, and may have blanks around it. The parser raises ValueError for any other text.
    """
    parse = one_of(*words)
    return lambda value: words(parse(value))


def word(words: type[E], *, any_case: bool = True) -> Callable[[str], E]:
    """Return a parser that takes a text and returns the member of the enum `words` whose value is this text.

    The parser raises ValueError for any other text. Blanks are not stripped, so a text with blanks around it is
    refused, as in Spark's own options. If `any_case` is true, the text is converted to lower case first. If it is
    false, the text must have the case of the enum's value.
    """

    def parse(value: str) -> E:
        try:
            return words(value.lower() if any_case else value)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(words)}") from None

    return parse


def refused(reason: str) -> Callable[[str], NoReturn]:
    """Return a parser that raises ValueError with `reason` for every value, for an option that must not be set."""

    def parse(value: str) -> NoReturn:
        raise ValueError(f"is not supported: {reason}")

    return parse


def topics(value: str) -> tuple[str, ...]:
    """Parse a comma-separated list of topics, and return their names in order.

    Blanks around names, empty names and duplicates are left out.

    Raises:
        ValueError: the list has no name.
    """
    names = tuple(dict.fromkeys(filter(None, map(trimmed, value.split(",")))))
    if not names:
        raise ValueError("names no topic")
    return names


def columns(value: str) -> tuple[str, ...]:
    """Parse a comma-separated list of the source's columns (`COLUMNS`), and return their names in order.

    Raises:
        ValueError: a name is unknown, or occurs twice.
    """
    names = tuple(name.strip() for name in value.split(","))
    if not set(names) <= set(COLUMNS) or len(set(names)) < len(names):
        raise ValueError(f"must name columns, each once, of {', '.join(COLUMNS)}")
    return names


def topic_pattern(value: str) -> str:
    """Check a regular expression for topic names, and return it without surrounding blanks.

    Spark reads it as a Java expression. Raises ValueError if Python's `re` refuses it, or may read it differently.
    """
    pattern = trimmed(value)
    if not pattern:
        raise ValueError("is an empty pattern")
    if _NESTED_SET.search(pattern):
        raise ValueError("has a set within a set, as [a[b]]: write [ab]")
    if _PYTHON_ONLY_GROUP.search(pattern):
        raise ValueError("has a group that Java does not know, as (?P<name>…) or (?#…)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # how `re` reports Java's [a&&b]
            re.compile(pattern, re.ASCII)
    except (re.error, FutureWarning, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression that Java and Python read alike ({error})") from error
    return pattern


def storage_uri(value: str) -> str:
    """Check the URI of a storage, such as `s3://bucket/prefix` or `file:///folder`, and return the URI.

    The result has no blanks around it and no slashes at its end. The container in
    `abfss://container@account.dfs.core.windows.net` is not a credential.

    Raises:
        ValueError: the text is not a URI with a bucket or folder. HiddenValueError if it has `?`, `#` or credentials.
    """
    uri, parts = _without_credentials(value)
    uri = "hdfs:///" if uri == "hdfs:" else uri
    if not parts.scheme or "://" not in uri:
        raise ValueError("must be a URI, e.g. s3://bucket/prefix or file:///folder")
    if "?" in uri or "#" in uri:  # a query may be a token
        raise HiddenValueError("must not have ? or #, after which nothing of a URI's path is read")
    if parts.scheme == "file" and (parts.netloc or not parts.path):
        raise ValueError("must name a folder by its absolute path: file:///folder")
    if parts.scheme not in ("file", "hdfs") and not parts.netloc:  # hdfs:///folder is in Hadoop's default file system
        raise ValueError(f"names no bucket: {parts.scheme}://bucket/prefix")
    return uri


def key_prefixes(value: str) -> tuple[str, ...]:
    """Parse a comma-separated list of prefixes of object keys, and return them without blanks around them.

    Raises ValueError if a prefix is empty.
    """
    prefixes = tuple(prefix.strip() for prefix in value.split(","))
    if not all(prefixes):
        raise ValueError("must be prefixes of object keys, none empty: old/,older/")
    return prefixes


def host_and_port(value: str, lowest_port: int = 1) -> tuple[str, int]:
    """Parse `host:port`, and return the host and the port, which is from `lowest_port` to 65535.

    A scheme such as `PLAINTEXT://` may precede the host, and is not returned. An IPv6 address must be in brackets,
    which are not returned. Raises ValueError for any other text.
    """
    match = _HOST_AND_PORT.fullmatch(value)
    if match is None or not lowest_port <= int(match["port"]) <= 0xFFFF:
        raise ValueError("is not host:port")
    return match["host"].strip("[]"), int(match["port"])


def bootstrap_servers(value: str) -> str:
    """Check a comma-separated list of `host:port`, and return it without blanks and empty entries.

    The result is empty if there are no entries. Raises ValueError for an entry of another form.
    """
    servers = [server.strip() for server in value.split(",") if server.strip()]
    for server in servers:
        try:
            host_and_port(server)
        except ValueError as error:
            raise ValueError(f"has {server!r}, which {error}") from None
    return ",".join(servers)


def report_addresses(value: str) -> tuple[ReportAddress, ...]:
    """Parse a comma-separated list of addresses with tokens (`host:port/token`), which may be empty.

    Raises:
        HiddenValueError: an address has another form.
    """
    matches = [_REPORT_ADDRESS.fullmatch(text.strip()) for text in value.split(",") if text.strip()]
    if None in matches:
        raise HiddenValueError("is no list of addresses with tokens. Only tiered_stream sets this option: remove it")
    return tuple(ReportAddress(match["place"], bytes.fromhex(match["token"])) for match in matches if match)


def aes_256_key(value: str) -> str:
    """Check a key of 256 bits in base64, and return it without blanks around it. Raises ValueError for other texts."""
    try:
        is_key = len(b64decode(value.strip(), validate=True)) == 32
    except ValueError:
        is_key = False
    if not is_key:
        raise ValueError("must be 32 bytes in base64")
    return value.strip()


def http_url(value: str) -> str:
    """Check an `http://` or `https://` URL, and return it without blanks around it and slashes at its end.

    Raises:
        ValueError: the text is not such a URL, or has no host. HiddenValueError if it has credentials.
    """
    url, _ = _without_credentials(value)
    if not is_http_url(url):
        raise ValueError("must be a URL, e.g. https://s3.example.com:9000")
    return url


def is_http_url(url: str) -> bool:
    """Return whether `url` is an `http://` or `https://` URL with a host, and without an invalid port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or too large
        return False


def http_hosts(value: str) -> tuple[str, ...]:
    """Parse a comma-separated list of hosts, and return a URL without a path for each host.

    A host may have a scheme and a port. The URL of a host without a scheme begins with `https://`. Raises ValueError if
    an entry is not a host.
    """
    urls = tuple(http_url(host if "://" in host else f"https://{host.strip()}") for host in text(value).split(","))
    if any((parts.path, parts.query, parts.fragment) != ("", "", "") for parts in map(urlsplit, urls)):
        raise ValueError("must be hosts, e.g. s3.example.com,*.s3.example.com:9000,http://minio:9000")
    return urls


def topic_ids(value: str) -> UUID | Mapping[str, UUID]:
    """Parse a topic id as Kafka prints it, or a JSON object of such ids by topic; return a UUID, or UUIDs by topic.

    Raises ValueError if the text has another form.
    """
    try:
        if not value.strip().startswith("{"):
            return uuid_from_text(value.strip())
        return {topic: uuid_from_text(topic_id) for topic, topic_id in orjson.loads(value).items()}
    except (ValueError, TypeError) as error:
        raise ValueError(
            'must be a topic id of 22 letters, digits, - and _, or ids by topic: {"topicA":"AAAAAAAAAAAAAAAAAAAAAQ"}'
        ) from error


def _within(value: int, minimum: int, maximum: int) -> int:
    if not minimum <= value <= maximum:
        bound = f"at least {minimum}" if value < minimum else f"at most {maximum}"
        raise ValueError(f"must be {bound}")
    return value


def _without_credentials(value: str) -> tuple[str, SplitResult]:
    uri = text(value).rstrip("/")
    try:
        parts = urlsplit(uri)
    except ValueError:  # not shown, because the error's text may repeat credentials
        raise ValueError("is not a URI: correct its host; an IPv6 address must be in brackets") from None
    names_container = parts.scheme in _AZURE and parts.password is None  # abfss://container@account.dfs.…
    if not names_container and (parts.username is not None or parts.password is not None):
        raise HiddenValueError("must not carry credentials: give them in the options for keys")
    return uri, parts


# Properties of Kafka's clients and of storage plugins.


class Use(Enum):
    """Effect that a property of Kafka's clients or of the storage plugin has on this source.

    HONOURED: the same effect as on Kafka's clients or the plugin. NO_EFFECT: no effect. REFUSED: an error.
    """

    HONOURED = "honoured"
    NO_EFFECT = "without effect"
    REFUSED = "an error"


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """Declaration of a property of Kafka's clients or of the storage plugin.

    Args:
        name: the property's name, in which `*` stands for any text.
        use: the property's effect on this source.
        doc: the effect of the property if `use` is HONOURED, otherwise the reason why it has no effect or is refused.
        default: the default value, as the documentation shows it; empty: the property has no default.
        accepted: values with which a refused property is not an error; their case is ignored.
        replaced_by: options that replace a refused property. If one of them is given, the property is not an error.
    """

    name: str
    use: Use
    doc: str
    default: str = ""
    accepted: tuple[str, ...] = ()
    replaced_by: tuple[Option[Any], ...] = ()

    def refuses(self, value: str) -> bool:
        """Return whether the property with this value is an error, unless an option in `replaced_by` is given.

        A property with an empty value is never an error.
        """
        return self.use is Use.REFUSED and value.strip().lower() not in ("", *map(str.lower, self.accepted))


def properties_of(use: Use, names_by_doc: Mapping[str, str]) -> Iterator[KnownProperty]:
    """Yield the declaration of each property in `names_by_doc`, all with the effect `use`.

    A key of `names_by_doc` is the `doc` of several declarations. The value has their names, separated by blanks.
    """
    for doc, names in names_by_doc.items():
        yield from (KnownProperty(name, use, doc) for name in names.split())
