"""Functions that open a fetcher of tiered segments (`RemoteStorageFetcher`), as the options say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.parsing import Options, StorageOptions
from tiered_stream.process.caches import PerProcess
from tiered_stream.storage.fetcher import Misplacement, RemoteStorageFetcher
from tiered_stream.storage.local_layout import LocalLayoutFetcher
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

_fetchers: PerProcess[RemoteStorageFetcher] = PerProcess()


def open_fetcher(options: StorageOptions) -> RemoteStorageFetcher:
    """Return the process's shared fetcher for the storage and layout in `options`.

    Raises:
        ConfigurationError: no storage is configured, its URI or endpoint is wrong, or a private key cannot be loaded.
    """

    def open_new() -> RemoteStorageFetcher:
        fetcher = fetcher_over(open_store(options), options)
        fetcher.find_misplacement = partial(_misplacement, options)
        return fetcher

    return _fetchers.get(options, open_new)


def _misplacement(options: StorageOptions, segment: RemoteLogSegment) -> Misplacement | None:
    # Imported here, because it is needed only if an object is missing.
    from tiered_stream.storage.segment_places import misplacement

    return misplacement(options, segment)


def fetcher_over(store: ObjectStore, options: StorageOptions) -> RemoteStorageFetcher:
    """Return a new fetcher that reads objects of the options' layout from `store`.

    Raises:
        ConfigurationError: a private key for the layout cannot be loaded.
    """
    if options.layout == StorageLayout.LOCAL:
        return LocalLayoutFetcher(store, options.limits)
    # Imported here, because it imports cryptography, which the other layout does not need.
    from tiered_stream.storage.aiven.aiven_fetcher import AivenLayoutFetcher
    from tiered_stream.storage.aiven.encryption import load_key_ring

    key_prefix = options.rsm_config.get("key.prefix", "")
    key_ring = load_key_ring(options.rsm_config, options.plugin_prefix)
    return AivenLayoutFetcher(store, key_prefix, key_ring, options.limits)


def fetcher_for(options: Options) -> RemoteStorageFetcher:
    """Return the process's shared fetcher for `options`.

    If `kafka.remote.storage.fetcher.class` names a class, the fetcher is an instance of that class. The class is called
    with the `kafka.*` properties as a dictionary. Without that option, the fetcher is the result of `open_fetcher`.

    Raises:
        ConfigurationError: the class cannot be imported or is no `RemoteStorageFetcher`, or `open_fetcher` raises it.
    """
    if options.fetcher_class is None:
        return open_fetcher(options.storage)
    name, class_path, properties = options.fetcher_class, options.fetcher_class_path, options.kafka
    key = {"class": name, "class.path": class_path, "kafka": properties}
    return _fetchers.get(key, lambda: _imported(name, class_path)(dict(properties)))


def _imported(name: str, class_path: str | None) -> Callable[[Mapping[str, str]], RemoteStorageFetcher]:
    """Import the class with the dotted `name`, and return it.

    The folder or archive `class_path`, if given, is added to `sys.path` first.

    Raises:
        ConfigurationError: the class cannot be imported, or is no subclass of `RemoteStorageFetcher`.
    """
    if class_path and class_path not in sys.path:
        sys.path.append(class_path)
    module, _, attribute = name.rpartition(".")
    try:
        fetcher_class = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"kafka.remote.storage.fetcher.class: {name} cannot be imported: {error}") from error
    if not (isinstance(fetcher_class, type) and issubclass(fetcher_class, RemoteStorageFetcher)):
        base = f"{RemoteStorageFetcher.__module__}.{RemoteStorageFetcher.__name__}"
        raise ConfigurationError(f"kafka.remote.storage.fetcher.class: {name} is no subclass of {base}")
    return fetcher_class
