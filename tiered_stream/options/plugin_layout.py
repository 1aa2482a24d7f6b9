"""Detection of the storage layout and the segments' bucket or folder from the storage plugin's properties. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.plugin_properties import HDFS_BACKEND, plugin_property
from tiered_stream.options.remote_options import (
    LAYOUT,
    S3_ENDPOINT_URL,
    S3_PATH_STYLE,
    S3_REGION,
    STORAGE_MANAGER,
    STORAGE_URI,
)

_PLACE = {StorageLayout.LOCAL: "dir", StorageLayout.AIVEN: "storage.s3.bucket.name"}
"""Plugin property that names the folder (`LOCAL`) or the S3 bucket (`AIVEN`) of the segments, by layout."""
_PLACES = {
    StorageLayout.LOCAL: ("dir",),
    StorageLayout.AIVEN: (
        "storage.s3.bucket.name", "storage.gcs.bucket.name", "storage.azure.container.name", "storage.hdfs.root",
        "storage.oci.bucket.name", "storage.root", "storage.backend.class",
    ),
}  # fmt: skip
"""Plugin properties that `plugin_uri` reads, in its order, by layout."""


def layout_of_properties(rsm_config: Mapping[str, str]) -> StorageLayout | None:
    """Return the layout of the storage plugin that has these `rsm.config.*` properties; None: no known plugin fits.

    The plugin's class name is not needed, because pasted properties may lack it: Strimzi has a separate field for the
    class name.
    """
    if any(plugin_property(name) or name.startswith("storage.") for name in rsm_config):
        return StorageLayout.AIVEN
    return StorageLayout.LOCAL if _PLACE[StorageLayout.LOCAL] in rsm_config else None


def chosen_layout(
    named: StorageLayout | None, of_plugin: StorageLayout | None, rsm_config: Mapping[str, str], prefix: str
) -> StorageLayout:
    """Return the storage layout: `named`, or `of_plugin`, or the layout that fits `rsm_config`; LOCAL if all are empty.

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


def plugin_uri(layout: StorageLayout, rsm_config: Mapping[str, str]) -> str | None:
    """Return the URI of the bucket, container or folder that the plugin's properties name, without the key prefix.

    None: the properties name no bucket, container or folder.
    """
    match layout, rsm_config:
        case StorageLayout.LOCAL, {"dir": folder}:
            return Path(folder, "kafka-tiered-storage").absolute().as_uri()
        case StorageLayout.AIVEN, {"storage.s3.bucket.name": bucket}:
            return f"s3://{bucket}"
        case StorageLayout.AIVEN, {"storage.gcs.bucket.name": bucket}:
            return f"gs://{bucket}"
        case StorageLayout.AIVEN, {"storage.azure.container.name": container}:
            return f"az://{container}"
        case StorageLayout.AIVEN, {"storage.hdfs.root": root}:
            return root if "://" in root else f"hdfs:///{root.strip('/')}"
        case StorageLayout.AIVEN, {"storage.oci.bucket.name": bucket} if bucket:
            return f"s3://{bucket}"
        case StorageLayout.AIVEN, {"storage.root": folder}:
            return Path(folder).absolute().as_uri()
        case StorageLayout.AIVEN, {"storage.backend.class": backend} if backend.strip() == HDFS_BACKEND:
            return "hdfs:///"
    return None


def oracle_settings(rsm_config: Mapping[str, str]) -> dict[str, str]:
    """Return the plugin's `storage.oci.*` as our options for the S3 interface of Oracle's storage, by name.

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
    """Return the plugin's property that has named the segments' place `uri`, without prefix; empty: an option has."""
    if uri is None or plugin_uri(layout, rsm_config) != uri:
        return ""
    return next(name for name in _PLACES[layout] if name in rsm_config)


def missing_place(layout: StorageLayout, prefix: str) -> ConfigurationError:
    """Return the error for plugin properties that do not name the bucket or folder, if no option names it either."""
    return ConfigurationError(
        f"{prefix}* is given, but not where the segments are: add {prefix}{_PLACE[layout]}, or {STORAGE_URI.name}"
    )
