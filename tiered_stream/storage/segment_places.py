"""Search of a bucket or folder for segments, for errors about wrong settings.

Segments are recognized by the form of their keys. The storage is listed only if an object is missing, or an archive is
empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from urllib.parse import urlsplit

from tiered_stream.data_limits import Limit
from tiered_stream.errors import CorruptDataError, StorageError, StorageObjectNotFoundError, UnsupportedDataError
from tiered_stream.model import RemoteLogSegment, uuid_to_text
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.options.plugin_properties import place_property
from tiered_stream.options.remote_options import LAYOUT, LOCATOR, RSM_CONFIG_PREFIX, STORAGE_URI
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.aiven.custom_metadata import parse_custom_metadata
from tiered_stream.storage.aiven.manifest import parse_manifest
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES, GOOGLE_SCHEME, S3_SCHEMES, bucket_and_path
from tiered_stream.storage.fetcher import Misplacement
from tiered_stream.storage.local_layout import object_key
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

_BUCKET_SCHEMES = (*S3_SCHEMES, GOOGLE_SCHEME, *AZURE_SCHEMES)
_KEYS_PER_LISTING = 1000
"""Number of keys that one listing request returns."""
_MAX_LISTINGS = 32
_MAX_PLACES = 32
_ARE_DELETED = f"If the objects were deleted, {LOCATOR.name}=none reads what the brokers still have"
_MANIFEST = ".rsm-manifest"
_SEGMENT = r"[0-9]{20}-[A-Za-z0-9_-]{22}"
_KEYS = {
    StorageLayout.LOCAL: re.compile(
        rf"(?P<before>(?:.*/)?)(?P<topic>[A-Za-z0-9._-]{{1,249}}-[0-9]{{1,10}}-[A-Za-z0-9_-]{{22}})/{_SEGMENT}"
        r"\.(log|index|timeindex|txnindex|snapshot|leader_epoch_checkpoint)"
    ),
    StorageLayout.AIVEN: re.compile(
        rf"(?P<path>(?P<before>(?:.*/)?)(?P<topic>[^/]+-[A-Za-z0-9_-]{{22}})/[0-9]{{1,10}}/{_SEGMENT})"
        r"\.(log|indexes|rsm-manifest)"
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Place of segments in the storage, as the settings that lead to them: layout, URI and key prefix.

    `key_prefix` is the Aiven plugin's `key.prefix`, which the local layout lacks. `plugin_prefix` is the prefix of the
    plugin's properties among the user's options.
    """

    layout: StorageLayout
    uri: str
    key_prefix: str = ""
    plugin_prefix: str = field(default=RSM_CONFIG_PREFIX.default, compare=False)

    @property
    def key_prefix_setting(self) -> str:
        """Name of the setting for the key prefix, as the user writes it."""
        return f"{self.plugin_prefix}key.prefix"

    def correction(self, configured: Place) -> str:
        """Return the settings of this place that differ from `configured`, as a text of `NAME=VALUE` for messages."""
        values = {
            "remote.storage.layout": (self.layout, configured.layout),
            "remote.storage.uri": (self.uri, configured.uri),
        }
        if self.layout == StorageLayout.AIVEN:
            values[configured.key_prefix_setting] = self.key_prefix, configured.key_prefix
        return " and ".join(f"{name}={value}" for name, (value, old) in values.items() if value != old)

    def log_key(self, segment: RemoteLogSegment, root: str) -> str:
        """Return the key of the segment's log, relative to the URI `root`."""
        folder = _path_below(root, self.uri)
        if self.layout == StorageLayout.LOCAL:
            return folder + object_key(segment, ".log")
        return f"{folder}{self.key_prefix}{main_path(segment)}.log"

    def topic_key(self, segment: RemoteLogSegment) -> str:
        """Return a key prefix, relative to `uri`, that only objects of the segment's topic have.

        In the local layout, only objects of the segment's partition have this prefix, because each partition has a
        folder.
        """
        topic_id = uuid_to_text(segment.topic_id)
        if self.layout == StorageLayout.LOCAL:
            return f"{segment.topic_partition}-{topic_id}/"
        return f"{self.key_prefix}{segment.topic_partition.topic}-{topic_id}/"


def configured_place(storage: StorageOptions, segment: RemoteLogSegment | None = None) -> Place:
    """Return the layout, URI and key prefix in the settings, as a `Place`.

    If the metadata of `segment` has a key prefix, that prefix replaces the prefix in the settings.
    """
    prefix = ""
    if storage.layout == StorageLayout.AIVEN:
        object_prefix = parse_custom_metadata(segment.custom_metadata).object_prefix if segment else None
        prefix = storage.rsm_config.get("key.prefix", "") if object_prefix is None else object_prefix
    return Place(storage.layout, storage.uri or "", prefix, storage.plugin_prefix)


def segment_places(storage: StorageOptions) -> list[Place]:
    """Search the whole bucket, or the configured folder, for segments, and return the places that lead to them.

    The search ends after `_MAX_LISTINGS` listing requests or `_MAX_PLACES` places, so further places may be missing. If
    a key prefix begins with the path of the settings' URI, the place has that URI and the rest of the key prefix.

    Raises:
        StorageError: the storage cannot be listed.
    """
    root, uri = _root(storage), storage.uri or ""
    path = _path_below(root, uri)
    places: dict[Place, None] = {}
    for place in islice(_listed_places(storage, root), _MAX_PLACES):
        if path and place.layout == StorageLayout.AIVEN and place.key_prefix.startswith(path):
            place = Place(place.layout, uri.rstrip("/"), place.key_prefix.removeprefix(path))
        places[place] = None
    return list(places)


def misplacement(storage: StorageOptions, segment: RemoteLogSegment) -> Misplacement | None:
    """Return how wrong settings explain a missing object of `segment`; None if the settings may be right.

    The settings may be right if they lead to other objects of the segment's topic, because then only this object was
    deleted. They may also be right if the storage cannot be listed, and the segment's log is not found anywhere else.
    """
    configured = configured_place(storage, segment)
    is_listed = False
    try:
        if next(open_store(storage).list(configured.topic_key(segment)), None) is not None:
            return None
        is_listed = True
    except StorageObjectNotFoundError:  # a prefix without objects is an empty listing
        advice = f"no bucket can be listed there: correct the endpoint, or {copy_broker_settings(storage)}"
        return Misplacement("", advice)
    except StorageError:
        pass  # the user is not authorized to list objects
    root = _root(storage)
    store = open_store(replace(storage, uri=root))
    with suppress(StorageError):
        for place in _possible_places(storage):
            key = place.log_key(segment, root)
            with suppress(StorageError):
                if place != configured and store.size(key) >= 0:
                    return Misplacement(store.describe(key), f"set {place.correction(configured)}")
    return Misplacement("", f"{copy_broker_settings(storage)}. {_ARE_DELETED}") if is_listed else None


def copy_broker_settings(storage: StorageOptions) -> str:
    """Return advice for errors: copy the settings of bucket and key prefix from the brokers' configuration.

    The settings have the names under which the user wrote them.
    """
    pasted = place_property(storage.layout, storage.rsm_config, storage.uri)
    place = f"{storage.plugin_prefix}{pasted}" if pasted else f"{STORAGE_URI.name}, {LAYOUT.name}"
    return f"set {place} and {storage.plugin_prefix}key.prefix to what the brokers' own settings say"


def _possible_places(storage: StorageOptions) -> Iterator[Place]:
    """Yield settings (`Place`) under which a segment may be in the storage.

    First come variants of the user's settings, which need no listing: the other layout, the URI of the whole bucket,
    and another key prefix. Then come the results of `segment_places`, for which the bucket or folder is listed. The
    storage is not asked whether the segment is there.
    """
    root, uri = _root(storage), storage.uri or ""
    key_prefix = storage.rsm_config.get("key.prefix", "")
    yield from dict.fromkeys((
        Place(StorageLayout.LOCAL, uri), Place(StorageLayout.LOCAL, root), Place(StorageLayout.AIVEN, root, key_prefix),
        Place(StorageLayout.AIVEN, root, _path_below(root, uri)), Place(StorageLayout.AIVEN, root),
    ))  # fmt: skip
    yield from segment_places(storage)


def _path_below(root: str, uri: str) -> str:
    """Return the path of `uri` below the URI `root`, with a slash at its end; empty if the two are the same."""
    path = uri.removeprefix(root).strip("/")
    return f"{path}/" if path else ""


def _root(storage: StorageOptions) -> str:
    """Return the URI of the whole bucket; a folder's URI is returned unchanged."""
    uri = storage.uri or ""
    scheme = urlsplit(uri).scheme
    return f"{scheme}://{bucket_and_path(uri)[0]}" if scheme in _BUCKET_SCHEMES else uri


def _listed_places(storage: StorageOptions, root: str) -> Iterator[Place]:
    """List the objects below the URI `root`, and yield the place of each segment.

    Consecutive segments of one place yield the place only once. At most `_MAX_LISTINGS` listing requests are sent.
    """
    store, after, known = open_store(replace(storage, uri=root)), "", ""
    for _ in range(_MAX_LISTINGS):
        count = 0
        for key in islice(store.list("", after), _KEYS_PER_LISTING):
            count += 1
            if known and key.startswith(known):  # another key of the last place
                continue
            match = next(((layout, match) for layout, form in _KEYS.items() if (match := form.fullmatch(key))), None)
            if match is None:
                after = key
            else:
                place, known = _place_of(store, root, *match, storage.limits.manifest)
                after = _after_prefix(known)
                yield place
        if count < _KEYS_PER_LISTING:
            return


def _place_of(
    store: ObjectStore, root: str, layout: StorageLayout, match: re.Match[str], limit: Limit
) -> tuple[Place, str]:
    before, topic = match["before"], match["topic"]
    if layout == StorageLayout.LOCAL:
        return Place(layout, f"{root}/{before}".rstrip("/")), before or f"{topic}/"
    prefix = _key_prefix(store, match["path"], limit)
    prefix = before if prefix is None else prefix
    return Place(layout, root, prefix), prefix or f"{topic}/"


def _key_prefix(store: ObjectStore, path: str, limit: Limit) -> str | None:
    """Return the key prefix of a segment, by the topic and ids in its manifest.

    Return None if the manifest cannot be read, or describes another segment.

    Args:
        path: key of the segment's manifest, without the suffix `.rsm-manifest`.
    """
    with suppress(StorageError, CorruptDataError, UnsupportedDataError):
        segment = parse_manifest(store.get(path + _MANIFEST, limit), path).segment
        if segment is not None and path.endswith(main_path(segment)):
            return path.removesuffix(main_path(segment))
    return None


def _after_prefix(prefix: str) -> str:
    """Return a key that sorts after all keys that begin with `prefix` (not empty), and before all keys after these."""
    return f"{prefix}\U0010ffff" if prefix.endswith("/") else prefix[:-1] + chr(ord(prefix[-1]) + 1)
