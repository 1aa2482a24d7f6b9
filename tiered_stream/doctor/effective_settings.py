"""Description of the settings that are in effect, with the place where each was written. Secrets are left out."""

from __future__ import annotations

from collections.abc import Iterator

from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, LANE, TABLE, TRIGGER
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import Result
from tiered_stream.options.command_settings import origin_of
from tiered_stream.options.plugin_layout import place_property
from tiered_stream.options.remote_options import RSM_CONFIG_PREFIX, STORAGE_URI
from tiered_stream.options.source_options import OPTIONS

_SHOWN = {
    *(option.name.lower() for option in OPTIONS if not option.secret),
    *(name.lower() for name in (TABLE, CHECKPOINT, TRIGGER, LANE)),
    "kafka.security.protocol", "kafka.sasl.mechanism", "kafka.default.api.timeout.ms",
    *(f"rsm.config.{name}" for name in ("key.prefix", "storage.backend.class", "storage.root", "dir")),
    *(f"rsm.config.storage.{name}" for name in ("s3.bucket.name", "gcs.bucket.name", "azure.container.name")),
    *(f"rsm.config.storage.s3.{name}" for name in ("region", "endpoint.url", "path.style.access.enabled")),
}  # fmt: skip
"""Names in lower case of the settings whose values hold no secrets. The values of all other settings are hidden."""


def describe_settings(job: Job) -> Result[bool]:
    """Return a text with each setting of the job, its value unless it may be a secret, and where it was written."""
    return Result(True, "; ".join(_described(job)))


def _described(job: Job) -> Iterator[str]:
    for name, value in sorted(job.settings.items()):
        shown = value if name.lower() in _SHOWN else "(hidden)"
        origin = origin_of(name)
        yield f"{name}={shown}" + (f" ({origin})" if origin else "")
    storage = job.options.storage
    if pasted := place_property(storage.layout, storage.rsm_config, storage.uri):
        yield f"{STORAGE_URI.name}={storage.uri} (from {RSM_CONFIG_PREFIX.default}{pasted})"
