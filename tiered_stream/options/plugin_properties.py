"""Properties of Aiven's tiered storage plugin (1.1.1), and the storage layout and place that plugin properties name.

The names come from the plugin's page `docs/configs.rst` and its classes `RemoteStorageManagerConfig` and `ProxyConfig`.
A `*` in a name stands for any text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.remote_options import (
    ACCESS_KEY_ID,
    LAYOUT,
    S3_ENDPOINT_URL,
    S3_PATH_STYLE,
    S3_REGION,
    SECRET_ACCESS_KEY,
    STORAGE_MANAGER,
    STORAGE_URI,
)
from tiered_stream.options.spark_options import FETCHER_CLASS
from tiered_stream.options.types import KnownProperty, Option, Use, properties_of
from tiered_stream.options.unknown_names import hint_for

log = logging.getLogger(__name__)

_AS_OUR_OPTIONS = """
storage.s3.region storage.s3.endpoint.url storage.s3.path.style.access.enabled storage.aws.access.key.id
storage.aws.secret.access.key storage.aws.session.token storage.gcs.credentials.json
storage.gcs.credentials.path storage.gcs.endpoint.url storage.azure.account.name storage.azure.account.key
storage.azure.sas.token storage.azure.connection.string storage.azure.endpoint.url storage.hdfs.core-site.path
storage.hdfs.hdfs-site.path storage.hdfs.auth.kerberos.principal storage.hdfs.auth.kerberos.keytab
"""
_HONOURED = {
    "storage.s3.bucket.name": "The bucket.",
    "storage.gcs.bucket.name": "The bucket in Google's storage.",
    "storage.gcs.credentials.default": "Google's application default credentials are used, unless others are given.",
    "storage.azure.container.name": "The container in Azure's storage.",
    "storage.hdfs.root": "The folder in HDFS; the default is the root of Hadoop's default file system.",
    "storage.hdfs.conf.*": "Hadoop's settings, by names in lower case and `fs.defaultFS`. They override the files.",
    "storage.oci.namespace.name": "The namespace in the address of Oracle's S3 interface.",
    "storage.oci.region": "The region in the address of Oracle's S3 interface.",
    "storage.root": "The folder, of the plugin's file system storage.",
    "key.prefix": "Prefix of the keys of all objects.",
    "encryption.key.pairs": "The ids of the key pairs by which segments may have been encrypted.",
    "encryption.key.pairs.*.private.key.file": "The private key of each pair, on every executor.",
}
_NO_EFFECT = {
    "each segment's manifest or metadata says it": """
        chunk.size compression.enabled compression.heuristic.enabled custom.metadata.fields.include encryption.enabled
        encryption.key.pair.id""",
    "it concerns uploads": """
        encryption.key.pairs.*.public.key.file storage.overwrite.enabled storage.s3.legacy.md5.plugin.enabled
        storage.azure.upload.block.size storage.gcs.resumable.upload.chunk.size storage.hdfs.upload.buffer.size
        storage.oci.multipart.upload.part.size storage.oci.storage.tier
        storage.s3.multipart.upload.part.size storage.s3.storage.class upload.rate.limit.bytes.per.second""",
    "it concerns the broker's caches, metrics and log": """
        fetch.chunk.cache.class fetch.chunk.cache.get.timeout.ms fetch.chunk.cache.path
        fetch.chunk.cache.prefetch.max.size fetch.chunk.cache.retention.ms fetch.chunk.cache.size
        fetch.chunk.cache.thread.pool.size fetch.indexes.cache.get.timeout.ms fetch.indexes.cache.retention.ms
        fetch.indexes.cache.size fetch.indexes.cache.thread.pool.size fetch.manifest.cache.get.timeout.ms
        fetch.manifest.cache.retention.ms fetch.manifest.cache.size fetch.manifest.cache.thread.pool.size
        key.prefix.mask metrics.num.samples metrics.recording.level metrics.sample.window.ms""",
    "requests have the timeouts of `kafka.fetch.remote.*` and `remote.fetch.request.timeout.ms`": """
        storage.s3.api.call.attempt.timeout storage.s3.api.call.timeout""",
    "HDFS asks for a login where it needs one": "storage.hdfs.auth.enabled",
    "record batches have checksums of their own": "storage.aws.checksum.check.enabled",
    "it is used with `segment.format=iceberg` only": """
        iceberg.catalog.class iceberg.catalog.* iceberg.namespace structure.provider.class structure.provider.*""",
}
_S3 = "io.aiven.kafka.tieredstorage.storage.s3.S3Storage"
_GOOGLE = "io.aiven.kafka.tieredstorage.storage.gcs.GcsStorage"
_AZURE = "io.aiven.kafka.tieredstorage.storage.azure.AzureBlobStorage"
HDFS_BACKEND = "io.aiven.kafka.tieredstorage.storage.hdfs.HdfsStorage"
"""Class of the plugin's storage in HDFS, whose properties need not name a folder."""
_ORACLE = "io.aiven.kafka.tieredstorage.storage.oci.OciStorage"
_FOLDER = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_CREDENTIALS = (
    f"give {ACCESS_KEY_ID.name} and what goes with it, or remove the property, so that AWS's credential chain is used"
)
_STORAGE_OPTIONS = (STORAGE_URI, FETCHER_CLASS)
_PROXIES = {
    "SOCKS proxies are not spoken: remove the property if the storage is reached without, or by an HTTP proxy in the "
    "environment variable HTTPS_PROXY": """
        storage.proxy.host storage.proxy.port storage.proxy.username storage.proxy.password"""
}
_REFUSED = (
    KnownProperty(
        "storage.backend.class", Use.REFUSED,
        "only S3's, Google's, Azure's and Oracle's storage, HDFS and folders are read. If the objects can also be "
        f"read by S3's API, set {STORAGE_URI.name}. Otherwise give a class of your own in {FETCHER_CLASS.name}, or "
        "read everything through the brokers by remote.log.locator=none",
        accepted=(_S3, _GOOGLE, _AZURE, HDFS_BACKEND, _ORACLE, _FOLDER), replaced_by=_STORAGE_OPTIONS,
    ),
    KnownProperty(
        "storage.oci.bucket.name", Use.REFUSED,
        "Oracle's storage is read by its S3 interface, which needs a customer secret key: set "
        f"{ACCESS_KEY_ID.name} and {SECRET_ACCESS_KEY.name}",
        replaced_by=(ACCESS_KEY_ID,),
    ),
    KnownProperty(
        "storage.oss.*", Use.REFUSED,
        "Alibaba's storage is read by its S3 interface: set remote.storage.uri=s3://BUCKET, "
        "remote.storage.s3.endpoint.url=https://s3.oss-REGION.aliyuncs.com, remote.storage.s3.region=oss-REGION and "
        f"{ACCESS_KEY_ID.name}",
        replaced_by=(STORAGE_URI,),
    ),
    KnownProperty(
        "segment.format", Use.REFUSED, "only `kafka` is read: with `iceberg`, read the Iceberg table",
        accepted=("kafka",),
    ),
    KnownProperty(
        "storage.aws.credentials.file", Use.REFUSED, f"the file is not read: {_CREDENTIALS}",
        replaced_by=(ACCESS_KEY_ID,),
    ),
    KnownProperty(
        "storage.aws.credentials.provider.class", Use.REFUSED,
        f"Java cannot be run here, and only `{_CHAIN}` has a counterpart: {_CREDENTIALS}",
        accepted=(_CHAIN,), replaced_by=(ACCESS_KEY_ID,),
    ),
    KnownProperty(
        "storage.aws.certificate.check.enabled", Use.REFUSED,
        "certificates are always checked: name the authority's file in the environment variable AWS_CA_BUNDLE",
        accepted=("true",),
    ),
)  # fmt: skip
PLUGIN_PROPERTIES = {
    known.name: known
    for known in (
        *(KnownProperty(name, Use.HONOURED, f"As `remote.{name}`.") for name in _AS_OUR_OPTIONS.split()),
        *(KnownProperty(name, Use.HONOURED, doc) for name, doc in _HONOURED.items()),
        *properties_of(Use.NO_EFFECT, _NO_EFFECT),
        *_REFUSED,
        *properties_of(Use.REFUSED, _PROXIES),
    )
}
"""Declarations of all plugin properties by name, without the broker's prefix, which is `rsm.config.` by default."""


def plugin_property(name: str) -> KnownProperty | None:
    """Return the declaration of the plugin property `name`, or None if the property is unknown.

    `name` must be in lower case, without the broker's prefix. A `*` in a declaration's name stands for any text.
    """
    known = PLUGIN_PROPERTIES.get(name)
    patterns = (pattern for pattern in PLUGIN_PROPERTIES.values() if "*" in pattern.name)
    return known or next((pattern for pattern in patterns if fnmatchcase(name, pattern.name)), None)


def check_plugin_properties(properties: Mapping[str, str], prefix: str, has: Callable[[Option[Any]], bool]) -> None:
    """Check that no plugin property has a value that this package does not support.

    Args:
        properties: the values of the plugin's properties, by name in lower case without `prefix`.
        prefix: the prefix of the plugin's properties among the options, for the message.
        has: returns whether the user gave an option. A given option can replace a property that is not supported.

    Raises:
        ConfigurationError: a property is not supported; the message names it.
    """
    for name in sorted(properties, key=lambda name: (name != "storage.backend.class", name)):
        known, value = plugin_property(name), properties[name]
        if known is not None and known.refuses(value) and not any(map(has, known.replaced_by)):
            shown = f" = {value.strip()[:200]!r}" if known.accepted else ""  # values of other properties may be secrets
            raise ConfigurationError(f"option {prefix}{name}{shown} is not supported: {known.doc.replace('`', '')}")


def warn_of_unknown_properties(properties: Mapping[str, str], prefix: str) -> None:
    """Log a warning for each unknown plugin property, which may be misspelled or belong to another plugin version.

    An unknown property has no effect. `properties` have names without `prefix`; the message has the name with `prefix`.
    """
    for name in sorted(properties):
        if plugin_property(name) is None:
            hint = hint_for(name, PLUGIN_PROPERTIES, f"; did you mean {prefix}{{}}?")
            log.warning("option %s%s is no known property of the Aiven plugin, and has no effect%s", prefix, name, hint)


_PLACES: dict[StorageLayout, dict[str, Callable[[str], str | None]]] = {
    StorageLayout.LOCAL: {"dir": lambda folder: Path(folder, "kafka-tiered-storage").absolute().as_uri()},
    StorageLayout.AIVEN: {
        "storage.s3.bucket.name": "s3://{}".format,
        "storage.gcs.bucket.name": "gs://{}".format,
        "storage.azure.container.name": "az://{}".format,
        "storage.hdfs.root": lambda root: root if "://" in root else f"hdfs:///{root.strip('/')}",
        "storage.oci.bucket.name": lambda bucket: f"s3://{bucket}" if bucket else None,
        "storage.root": lambda folder: Path(folder).absolute().as_uri(),
        "storage.backend.class": lambda backend: "hdfs:///" if backend.strip() == HDFS_BACKEND else None,
    },
}
"""Functions that convert a plugin property's value to the URI of a bucket, container or folder, by layout and property.

A function returns None if the value names no place. The first property that names a place counts.
"""


def layout_of_properties(rsm_config: Mapping[str, str]) -> StorageLayout | None:
    """Return the layout of the storage plugin that has the properties `rsm_config`, or None if no known plugin fits.

    `rsm_config` has the properties by name without the prefix `rsm.config.`. The plugin's class name is not needed.
    Strimzi, for example, has a separate field for it.
    """
    if any(plugin_property(name) or name.startswith("storage.") for name in rsm_config):
        return StorageLayout.AIVEN
    return StorageLayout.LOCAL if "dir" in rsm_config else None


def chosen_layout(
    named: StorageLayout | None, of_plugin: StorageLayout | None, rsm_config: Mapping[str, str], prefix: str
) -> StorageLayout:
    """Return the storage layout: the first of `named`, `of_plugin`, the layout that fits `rsm_config`, and LOCAL.

    Args:
        named: the layout in `remote.storage.layout`; None: the option is not given.
        of_plugin: the layout of the class in `remote.log.storage.manager.class.name`; None: the option is not given.
        rsm_config: the plugin's properties, by name without `prefix`.
        prefix: the prefix of the plugin's properties among the options, for the message.

    Raises:
        ConfigurationError: `named` and `of_plugin` contradict each other, or only `rsm_config` is given and fits no
            layout.
    """
    if named and of_plugin and named != of_plugin:
        raise ConfigurationError(
            f"option {LAYOUT.name} is {named}, but {STORAGE_MANAGER.name} names the plugin of the layout {of_plugin}; "
            "take one of the two away"
        )
    layout = named or of_plugin or layout_of_properties(rsm_config)
    if rsm_config and layout is None:
        raise ConfigurationError(
            f"{prefix}* is given, but not whose properties these are: add {STORAGE_MANAGER.name}, or {LAYOUT.name}"
        )
    return layout or StorageLayout.LOCAL


def named_place(layout: StorageLayout, rsm_config: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the plugin property that names the bucket, container or folder of the segments, and this place's URI.

    The property's name has no prefix, and the URI no key prefix. The result is ("", None) if no property names a place.
    """
    places = (
        (name, uri_of(rsm_config[name])) for name, uri_of in _PLACES.get(layout, {}).items() if name in rsm_config
    )
    return next(((name, uri) for name, uri in places if uri is not None), ("", None))


def oracle_settings(rsm_config: Mapping[str, str]) -> dict[str, str]:
    """Return options for the S3 interface of Oracle's storage, by name, from the plugin's properties `storage.oci.*`.

    The result is empty if the properties do not name a namespace and a region.
    """
    names = ("storage.oci.namespace.name", "storage.oci.region")
    namespace, region = (rsm_config.get(name, "").strip() for name in names)
    if not (namespace and region):
        return {}
    return {
        S3_ENDPOINT_URL.name: f"https://{namespace}.compat.objectstorage.{region}.oraclecloud.com",
        S3_REGION.name: region,
        S3_PATH_STYLE.name: "true",
    }


def place_property(layout: StorageLayout, rsm_config: Mapping[str, str], uri: str | None) -> str:
    """Return the name, without prefix, of the plugin property that names `uri`, the bucket or folder of the segments.

    The result is empty if no property names `uri`, because an option does.
    """
    name, named_uri = named_place(layout, rsm_config)
    return name if named_uri == uri else ""


def missing_place(layout: StorageLayout, prefix: str) -> ConfigurationError:
    """Return the error for plugin properties that are given without the bucket or folder of the segments."""
    usual = next(iter(_PLACES[layout]))
    return ConfigurationError(
        f"{prefix}* is given, but not where the segments are: add {prefix}{usual}, or {STORAGE_URI.name}"
    )
