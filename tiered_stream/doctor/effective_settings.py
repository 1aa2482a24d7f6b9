"""Description of the settings that are in effect, with the place where each was written. Secrets are left out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, LANE, TABLE, TRIGGER
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import NotNeededError, Result
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.options.given_options import OPTIONS
from tiered_stream.options.plugin_properties import place_property
from tiered_stream.options.remote_options import LAYOUT, RSM_CONFIG_PREFIX, STORAGE_MANAGER, STORAGE_URI
from tiered_stream.options.settings_files import gives, origin_of

MAX_CHARACTERS = 100_000
"""Maximum number of characters of a description: a job may have several hundred settings."""
_MAX_VALUE = 300
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@")
"""Part of an address with a user's name and a password."""
_PLUGIN = RSM_CONFIG_PREFIX.default
_SHOWN = {
    *(option.name.lower() for option in OPTIONS if not option.secret),
    *(name.lower() for name in (TABLE, CHECKPOINT, TRIGGER, LANE)),
    "kafka.security.protocol", "kafka.sasl.mechanism", "kafka.default.api.timeout.ms",
    *(f"{_PLUGIN}{name}" for name in ("key.prefix", "storage.backend.class", "storage.root", "dir")),
    *(f"{_PLUGIN}storage.{name}" for name in ("s3.bucket.name", "gcs.bucket.name", "azure.container.name")),
    *(f"{_PLUGIN}storage.s3.{name}" for name in ("region", "endpoint.url", "path.style.access.enabled")),
}  # fmt: skip
"""Names in lower case of the settings whose values hold no secrets. The values of all other settings are hidden."""
_SHOWN_OF_SPARK = {
    "spark.master", "spark.submit.deployMode", "spark.jars", "spark.jars.packages", "spark.driver.memory",
    "spark.executor.memory", "spark.executor.cores", "spark.executor.instances", "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled", "spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.hadoop.fs.defaultFS",
    *(f"spark.hadoop.fs.s3a.{name}" for name in ("endpoint", "endpoint.region", "path.style.access")),
    "spark.hadoop.fs.s3a.aws.credentials.provider",
}  # fmt: skip
"""Spark's settings whose values hold no secrets. The values of all other settings are hidden."""
_VARIABLES = (
    "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
    "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT",
    "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_AUTHORITY_HOST", "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME",
    "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "HADOOP_CONF_DIR", "SSL_CERT_FILE", "NO_PROXY", "no_proxy",
    "OTEL_EXPORTER_OTLP_ENDPOINT", "XDG_CACHE_HOME",
)  # fmt: skip
_SECRET_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_ACCOUNT_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy",
    "https_proxy", "all_proxy",
)  # fmt: skip
"""Environment variables whose values are hidden. The address of a proxy may have a password."""


def describe_settings(job: Job) -> Result[bool]:
    """Describe each setting of the job: its name, its value unless it may be a secret, and where the user wrote it."""
    return Result(True, "; ".join(_described(job)))


def _described(job: Job) -> Iterator[str]:
    storage = job.options.storage
    prefix = storage.plugin_prefix
    for name, value in sorted(job.settings.items()):
        known = name.lower()
        if known.startswith(prefix.lower()):
            known = _PLUGIN + known.removeprefix(prefix.lower())
        yield _setting(name, value, shown=known in _SHOWN)
    if pasted := place_property(storage.layout, storage.rsm_config, storage.uri):
        yield f"{STORAGE_URI.name}={storage.uri} (from {prefix}{pasted})"
    if not gives(job.settings, (LAYOUT.name,)):
        plugin = f"from {prefix}*" if storage.rsm_config else "the default"
        origin = f"from {STORAGE_MANAGER.name}" if gives(job.settings, (STORAGE_MANAGER.name,)) else plugin
        yield f"{LAYOUT.name}={storage.layout} ({origin})"


def describe_spark(spark: SparkConf) -> Result[bool]:
    """Describe each of Spark's settings: its name, its value unless it may be a secret, and where the user wrote it.

    Raises:
        NotNeededError: Spark has no settings.
    """
    if not spark.values:
        raise NotNeededError("neither a file nor --spark-conf sets any")
    named = sorted(spark.values.items())
    return Result(True, "; ".join(_setting(name, value, shown=name in _SHOWN_OF_SPARK) for name, value in named))


def describe_environment() -> Result[bool]:
    """Describe this process's environment variables that the job, Spark or a cloud's SDK reads; hide secret values.

    Raises:
        NotNeededError: none of these variables is set.
    """
    named = sorted({*_VARIABLES, *_SECRET_VARIABLES} & os.environ.keys())
    if not named:
        raise NotNeededError("none is set that a job, Spark or an SDK of a cloud reads")
    return Result(True, "; ".join(_setting(name, os.environ[name], shown=name in _VARIABLES) for name in named))


def _setting(name: str, value: str, *, shown: bool) -> str:
    text = value if len(value) <= _MAX_VALUE else f"{value[:_MAX_VALUE]}…"
    origin = origin_of(name)
    hidden = not shown or _PASSWORD.search(value)
    return f"{name}={'(hidden)' if hidden else text}" + (f" ({origin})" if origin else "")
