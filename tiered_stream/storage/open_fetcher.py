"""From storage options to a fetcher: which store, which layout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.parsing import Options, StorageOptions
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher
from tiered_stream.storage.object_store import ObjectStore

_fetchers: dict[tuple[object, ...], RemoteStorageFetcher] = {}


def open_fetcher(options: StorageOptions) -> RemoteStorageFetcher:
    """The process's fetcher for these options: made once, shared by all threads, never by a forked process.

    Raises:
        ConfigurationError: no storage is configured, or its URI's scheme or the layout is unknown.
    """
    # The process id: a fork must not go on with its parent's connections.
    key = (os.getpid(), *(_hashable(getattr(options, option.name)) for option in fields(options)))
    fetcher = _fetchers.get(key)
    # Two threads may both make one; setdefault lets all use the same, without a lock that a fork could inherit locked.
    return fetcher or _fetchers.setdefault(key, _open(options))


def open_store(options: StorageOptions) -> ObjectStore:
    """A new store for `options.uri`.

    Raises:
        ConfigurationError: as `open_fetcher`.
    """
    if options.uri is None:
        raise ConfigurationError(
            "remote.storage.uri is missing: it says where the tiered segments are, as s3://bucket/prefix"
        )
    uri = urlsplit(options.uri)
    if uri.scheme == "file":
        if uri.netloc not in ("", "localhost") or not uri.path.startswith("/"):
            raise ConfigurationError(f"remote.storage.uri: {options.uri!r} names no local folder; write file:///folder")
        return FileStore(Path(unquote(uri.path)))
    if uri.scheme in ("s3", "s3a"):
        # Imported here: boto3 takes long to import, and a file store does without it.
        from tiered_stream.storage.s3_store import open_s3_store

        return open_s3_store(options, bucket=uri.netloc, prefix=uri.path)
    raise ConfigurationError(
        f"remote.storage.uri: the scheme {uri.scheme!r} is not known; s3://bucket/prefix and file:///folder are"
    )


def _open(options: StorageOptions) -> RemoteStorageFetcher:
    if options.layout == StorageLayout.LOCAL:
        return LocalLayoutFetcher(open_store(options))
    if options.layout == StorageLayout.AIVEN:
        # Imported here, as boto3 above: the other layout does without cryptography.
        from tiered_stream.storage.aiven.aiven_fetcher import AivenLayoutFetcher
        from tiered_stream.storage.aiven.encryption import load_key_ring

        key_prefix = options.rsm_config.get("key.prefix", "")
        return AivenLayoutFetcher(open_store(options), key_prefix, load_key_ring(options.rsm_config))
    raise ConfigurationError(f"remote.storage.layout: {options.layout!r} is not known; local and aiven are")


def _hashable(value: object) -> object:
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else value


def fetcher_for(options: Options) -> RemoteStorageFetcher:
    """The fetcher that the options ask for: the user's own class, called with the `kafka.*` properties, or ours.

    Raises:
        ConfigurationError: the class cannot be imported or is no `RemoteStorageFetcher`; or as `open_fetcher`.
    """
    if options.fetcher_class is None:
        return open_fetcher(options.storage)
    # The process id: a fork must not go on with its parent's connections.
    return _made(options.fetcher_class, options.fetcher_class_path, frozenset(options.kafka.items()), os.getpid())


_BASE = f"{RemoteStorageFetcher.__module__}.{RemoteStorageFetcher.__name__}"


@cache
def _made(
    name: str, class_path: str | None, properties: frozenset[tuple[str, str]], _process: int
) -> RemoteStorageFetcher:
    made: Callable[[Mapping[str, str]], RemoteStorageFetcher] = load_fetcher_class(name, class_path)
    return made(dict(properties))


def load_fetcher_class(name: str, class_path: str | None) -> type[RemoteStorageFetcher]:
    """The class of that dotted name, imported from `class_path` (a folder or archive) where that is given.

    Raises:
        ConfigurationError: there is no such class, or it is not a subclass of `RemoteStorageFetcher`.
    """
    if class_path and class_path not in sys.path:
        sys.path.append(class_path)
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"kafka.remote.storage.fetcher.class: {name} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, RemoteStorageFetcher)):
        raise ConfigurationError(f"kafka.remote.storage.fetcher.class: {name} is no subclass of {_BASE}")
    return found
