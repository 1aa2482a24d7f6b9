"""Client of a schema registry, with a cache of schemas by id.

The registry has Confluent's REST API, which Karapace and Apicurio have too. A request goes to the registry's servers in
turn, until one server responds with the object. A schema never changes under its id, so a process requests each schema
once.
"""

from __future__ import annotations

import random
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from urllib.parse import quote
from uuid import UUID

import urllib3
from cachetools import TTLCache
from urllib3.util.ssl_ import create_urllib3_context

from tiered_stream import errors, timed_http
from tiered_stream.errors import SchemaRegistryError, UnknownSchemaError
from tiered_stream.process.caches import PerProcess, SingleFlightCache

_CONNECT_SECONDS, _READ_SECONDS = 5.0, 15.0
_ROUNDS, _FIRST_WAIT = 5, 0.2
"""Maximum number of requests to each server, and the seconds to wait before the second one. Each further wait is twice
as long as the wait before.
"""
_MAX_BYTES = 8 << 20
_UNKNOWN = (40401, 40402, 40403)
"""Error codes of the registry for a missing subject, version or schema. A 404 response without them has another cause.
"""
GUIDS = "/schemas/guids/"
"""URL path in front of a schema's GUID, for requests by GUID. Not every registry has this path."""
_PROPERTIES = ("url", "basic.auth.user.info", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
               "ssl.key.password")  # fmt: skip


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Addresses and login of a schema registry.

    `properties` are settings with the names of Confluent's Python client, and name files in PEM format. `urls` are the
    comma-separated addresses in the property `url`. `parse` checks the properties.

    `context` is the registry's context in which schema ids are looked up, in the form in front of subjects (`:.prod:`).
    '' is the default context. Each context has its own ids.
    """

    urls: tuple[str, ...]
    properties: Mapping[str, str] = field(repr=False)
    context: str = ""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> RegistrySettings:
        """Check the properties, and return them as settings for the default context.

        Raises:
            ConfigurationError: a property is missing, unknown or malformed.
        """
        if unknown := sorted(set(properties) - set(_PROPERTIES)):
            known = ", ".join(_PROPERTIES)
            raise errors.ConfigurationError(f"the schema registry has no property {unknown[0]}; it has {known}")
        urls = tuple(url.strip().rstrip("/") for url in properties.get("url", "").split(",") if url.strip())
        if not urls:
            raise errors.ConfigurationError("the property url is missing: where is the schema registry?")
        for url in urls:
            _check_url(url)
        if ":" not in properties.get("basic.auth.user.info", ":"):
            raise errors.ConfigurationError("basic.auth.user.info is not of the form user:password")
        if "ssl.key.location" in properties and "ssl.certificate.location" not in properties:
            raise errors.ConfigurationError("ssl.key.location has no ssl.certificate.location")
        return cls(urls, dict(properties))


def _check_url(url: str) -> None:
    try:
        parts = urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError:
        raise errors.ConfigurationError("url: one of the addresses is no URL") from None
    if parts.auth is not None:
        raise errors.ConfigurationError("url has a user in it; say user:password in basic.auth.user.info instead")
    if parts.scheme not in ("http", "https") or not parts.host or parts.query or parts.fragment:
        raise errors.ConfigurationError(f"url: {url!r} is not of the form http(s)://host:port/path")


def _unreached(url: str, error: Exception) -> errors.SchemaRegistryError:
    untrusted = timed_http.untrusted_certificate(error)
    if untrusted is not None:
        return errors.SchemaRegistryError(
            f"the schema registry {url}: TLS failed: {untrusted.verify_message}; is its authority in ssl.ca.location?"
        )
    detail = str(error) if type(error) is ValueError else type(error).__name__
    return errors.SchemaRegistryUnavailableError(f"the schema registry {url} was not reached: {detail}")


def _refused(url: str, path: str, status: int, code: object) -> errors.SchemaRegistryError:
    reported = f"{status} ({code})" if isinstance(code, int) else str(status)
    if status in timed_http.RETRIABLE_STATUSES:
        return errors.SchemaRegistryUnavailableError(f"the schema registry {url} responded with {reported}")
    if status == 404 and code in _UNKNOWN:
        return errors.UnknownSchemaError(f"the schema registry {url} has no {path}")
    hints = {401: "check basic.auth.user.info", 403: "may this user read schemas?", 200: "that is no object of JSON"}
    if path.startswith(GUIDS) and status in (404, 405):
        hints[status] = (
            "does this registry know GUIDs? With PrefixSchemaIdDeserializer as the schema.id.deserializer, headers are "
            "not looked at"
        )
    hint = hints.get(status, "is this the address of a schema registry that speaks Confluent's API?")
    return errors.SchemaRegistryError(f"the schema registry {url} responded to {path} with {reported}; {hint}")


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = create_urllib3_context()
    authority, certificate = properties.get("ssl.ca.location"), properties.get("ssl.certificate.location")
    try:
        if authority is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise errors.ConfigurationError(f"ssl.ca.location: {authority!r} has no certificates: {_why(error)}") from None
    if certificate is not None:
        # Without a password OpenSSL would ask for one on the terminal.
        key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password", "")
        try:
            context.load_cert_chain(certificate, key, password)
        except (OSError, ValueError) as error:
            raise errors.ConfigurationError(
                f"ssl.certificate.location, ssl.key.location: {certificate!r} and {key!r} are no certificate with its "
                f"key, or ssl.key.password does not open it: {_why(error)}"
            ) from None
    return context


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or type(error).__name__)


_MAX_CHARACTERS, _MAX_UNKNOWN, _UNKNOWN_SECONDS = 64 << 20, 100_000, 60.0
_MAX_REFERENCES = 200
_Reference = tuple[str, str, int]
"""Name, subject and version by which a schema refers to another schema."""
_Loaded = dict[_Reference, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """Schema of a registry, with all schemas that it refers to, directly or not.

    `kind` is AVRO, PROTOBUF or JSON. `text` is the schema's text. `references` has (name, text) of each schema that
    this schema refers to. A schema comes after the schemas that it refers to itself.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]

    @property
    def size(self) -> int:
        return len(self.text) + sum(len(text) for _, text in self.references)


class SchemaRegistry:
    """Client of one registry that caches schemas, safe to use from several threads.

    The function `schema_registry` returns the client that all callers in a process share. Requests go through the proxy
    in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY. The constructor raises ConfigurationError if the TLS files cannot be used,
    or the proxy is no URL.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user_info := settings.properties.get("basic.auth.user.info"):
            headers |= urllib3.make_headers(basic_auth=user_info)
        tls = _tls(settings.properties)
        try:
            self._pools = {
                url: timed_http.timed_pools(
                    _CONNECT_SECONDS, _READ_SECONDS, tls, headers, proxy=timed_http.environment_proxy(url)
                )
                for url in settings.urls
            }
        except (urllib3.exceptions.HTTPError, ValueError):
            raise errors.ConfigurationError(
                "the proxy of the schema registry is no URL: correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
            ) from None
        self._context = settings.context
        self._schemas: SingleFlightCache[int | UUID, RegisteredSchema] = SingleFlightCache(
            _MAX_CHARACTERS, lambda schema: schema.size + 1000
        )
        self._unknown: TTLCache[int | UUID, bool] = TTLCache(_MAX_UNKNOWN, _UNKNOWN_SECONDS)
        self._lock = Lock()

    def by_id(self, schema_id: int | UUID) -> RegisteredSchema:
        """Return the schema with this id, or with this GUID if `schema_id` is a UUID.

        Raises:
            UnknownSchemaError: the registry has no such schema. During the next minute, the same call raises this error
                without a request.
            SchemaRegistryError: the registry cannot be reached, or refuses the request.
        """
        # The error has the same text each time, because dead letters have this text as their reason.
        unknown = UnknownSchemaError(f"the schema registry has no schema {schema_id}")
        with self._lock:
            if schema_id in self._unknown:
                raise unknown
        # A GUID is the schema's in all contexts. An id without a subject is looked up in the default context.
        in_context = f"?subject={quote(self._context, safe='')}" if self._context else ""
        path = f"/schemas/ids/{schema_id}{in_context}" if isinstance(schema_id, int) else f"{GUIDS}{schema_id}"
        try:
            return self._schemas.get(schema_id, lambda: self._load(path))
        except UnknownSchemaError as error:
            with self._lock:
                self._unknown[schema_id] = True
            raise unknown from error

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject. Each call sends a request, because a newer schema may exist.

        Raises:
            UnknownSchemaError: the registry has no such subject.
            SchemaRegistryError: the registry cannot be reached, or refuses the request.
        """
        return self._load(f"/subjects/{subject_path(subject)}/versions/latest")

    def _load(self, path: str) -> RegisteredSchema:
        response = self._get(path)
        references: _Loaded = {}
        try:
            self._refer(response, self._context, references, ())
        except UnknownSchemaError as error:
            raise SchemaRegistryError(f"{path} refers to what is not there: {error}") from error
        kind = str(response.get("schemaType") or "AVRO")
        return RegisteredSchema(kind, _text(path, response), tuple(references.values()))

    def _refer(self, response: Mapping[str, Any], context: str, loaded: _Loaded, above: tuple[_Reference, ...]) -> None:
        """Load all schemas that the schema in `response` refers to, directly or not, and add them to `loaded`.

        `loaded` gets (name, text) by reference, each after the schemas that it refers to itself. `context` is the
        context of subjects without a context. `above` are the references that lead to the schema in `response`.

        Raises:
            UnknownSchemaError: the registry does not have one of the schemas.
            SchemaRegistryError: a request fails, or a reference is malformed, refers to itself, or exceeds the limit.
        """
        listed = response.get("references") or []
        for reference in listed if isinstance(listed, list) else [listed]:
            match reference:
                case {"name": str(name), "subject": str(subject), "version": int(version)}:
                    subject = subject if context_of(subject) else context + subject
                case _:
                    raise SchemaRegistryError(
                        f"the schema registry gives a malformed reference: {str(reference)[:100]}"
                    )
            key = name, subject, version
            path = f"/subjects/{subject_path(subject)}/versions/{version}"
            if key in loaded:
                continue
            if key in above or len(loaded) + len(above) >= _MAX_REFERENCES:
                raise SchemaRegistryError(f"{path} refers to itself, or to more than {_MAX_REFERENCES} schemas")
            below = self._get(path)
            self._refer(below, context_of(subject), loaded, (*above, key))
            loaded[key] = name, _text(path, below)

    def _get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at `path`, from the first server that returns it.

        The request goes to the servers in turn, up to 5 times to each server. An error that is not temporary is raised
        at once.

        Raises:
            UnknownSchemaError: the registry does not have the object.
            SchemaRegistryUnavailableError: no server could be reached, or every server responded with an error that may
                be temporary.
            SchemaRegistryError: a server refused the request, or is not a schema registry.
        """
        wait, why = _FIRST_WAIT, ""
        for left in reversed(range(_ROUNDS)):
            for url in self._pools:
                try:
                    return self._request(url, path)
                except errors.SchemaRegistryUnavailableError as error:
                    why = str(error)
            if left:
                time.sleep(wait * random.uniform(0.8, 1.2))
                wait *= 2
        raise errors.SchemaRegistryUnavailableError(f"{why} (asked {_ROUNDS} times)")

    def _request(self, url: str, path: str) -> dict[str, Any]:
        try:
            status, content = timed_http.fetch(self._pools[url], "GET", url + path, _MAX_BYTES)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _unreached(url, error) from error
        document = timed_http.json_object(content)
        if status == 200 and document is not None:
            return document
        raise _refused(url, path, status, (document or {}).get("error_code"))


def context_of(subject: str) -> str:
    """Return the context in front of a subject's name, such as `:.prod:`; '' for a subject of the default context."""
    found = re.match(r":\.[^:]*:", subject)
    return found[0] if found else ""


def _text(path: str, response: Mapping[str, Any]) -> str:
    text = response.get("schema")
    if not isinstance(text, str):
        raise SchemaRegistryError(f"the schema registry's response to {path} has no schema")
    return text


_registries: PerProcess[SchemaRegistry] = PerProcess()


def schema_registry(settings: RegistrySettings) -> SchemaRegistry:
    """Return the registry client for the settings, which all callers in this process share.

    Raises:
        ConfigurationError: the TLS files in the settings cannot be used, or the environment's proxy is no URL.
    """
    return _registries.get(settings, lambda: SchemaRegistry(settings))


def subject_path(subject: str) -> str:
    """Return a subject's name, escaped as one segment of a URL's path.

    The dots of the names `.` and `..` are escaped too, because HTTP clients remove such segments.
    """
    escaped = quote(subject, safe="")
    return escaped if subject.strip(".") else escaped.replace(".", "%2E")
