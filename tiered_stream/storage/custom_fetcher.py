"""A user's own fetcher (KIP-1254: `remote.storage.fetcher.class` and `.class.path`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import Options
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.open_fetcher import open_fetcher


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
