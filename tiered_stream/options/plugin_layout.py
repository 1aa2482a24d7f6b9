"""Which layout the storage plugin's own properties are of, and where they say that the segments are. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.plugin_properties import plugin_property
from tiered_stream.options.remote_options import LAYOUT, STORAGE_MANAGER, STORAGE_URI

_PLACE = {StorageLayout.LOCAL: "dir", StorageLayout.AIVEN: "storage.s3.bucket.name"}
"""The property that says where the segments are."""


def layout_of_properties(rsm_config: Mapping[str, str]) -> StorageLayout | None:
    """The layout of the plugin that has such properties, as `rsm.config.*` has them; None: they do not tell.

    Strimzi has the plugin's class in a field of its own, so that it is missing where the properties are pasted.
    """
    if any(plugin_property(name) or name.startswith("storage.") for name in rsm_config):
        return StorageLayout.AIVEN
    return StorageLayout.LOCAL if _PLACE[StorageLayout.LOCAL] in rsm_config else None


def chosen_layout(
    named: StorageLayout | None, of_plugin: StorageLayout | None, rsm_config: Mapping[str, str], prefix: str
) -> StorageLayout:
    """The layout by the two options that name one, or by the plugin's properties.

    Args:
        named: by `remote.storage.layout`.
        of_plugin: by `remote.log.storage.manager.class.name`.
        prefix: what the names of the plugin's properties begin with.

    Raises:
        ConfigurationError: the options contradict each other, or the properties do not tell.
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
    """Where the plugin's own properties say that the segments are, the key prefix left to the layout."""
    match layout, rsm_config:
        case StorageLayout.LOCAL, {"dir": folder}:
            return Path(folder, "kafka-tiered-storage").absolute().as_uri()
        case StorageLayout.AIVEN, {"storage.s3.bucket.name": bucket}:
            return f"s3://{bucket}"
        case StorageLayout.AIVEN, {"storage.root": folder}:
            return Path(folder).absolute().as_uri()
    return None


def missing_place(layout: StorageLayout, prefix: str) -> ConfigurationError:
    """The error for properties of the plugin that do not say where the segments are, where nothing else does."""
    return ConfigurationError(
        f"{prefix}* is given, but not where the segments are: add {prefix}{_PLACE[layout]}, or {STORAGE_URI.name}"
    )
