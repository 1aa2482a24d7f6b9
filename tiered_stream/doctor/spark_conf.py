"""Spark's configuration as spark-submit would build it, read from Spark's files without starting Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tiered_stream.options.settings_files import spark_settings
from tiered_stream.storage.hadoop.client_settings import DEFAULT_FS, default_file_system

if TYPE_CHECKING:
    from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings

_HADOOP = "spark.hadoop."
_LIBRARIES = {
    "org.apache.hadoop.fs.s3a.S3AFileSystem": "hadoop-aws",
    "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem": "hadoop-azure",
    "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem": "gcs-connector",
    "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem": "hadoop-gcp",
}
"""Names of jars without their versions, by the Java class of the Hadoop file system that the jar contains."""
_JAR_LISTS = ("spark.jars", "spark.driver.extraClassPath")


@dataclass(frozen=True)
class SparkConf:
    """Spark's settings by name (`values`), and Spark's installation folder on this machine (`home`).

    If Spark is not installed on this machine, `home` is None.
    """

    values: Mapping[str, str]
    home: Path | None

    def hadoop(self, name: str) -> str | None:
        """Return the Hadoop setting `name` from Spark's `spark.hadoop.*`, or None if it is not set there.

        Hadoop's own files (core-site.xml) are not read.
        """
        return self.values.get(_HADOOP + name)

    def default_fs(self) -> str:
        """Return the file system of paths without a scheme (Hadoop: `fs.defaultFS`); `file:///` if it is not set.

        Raises:
            ConfigurationError: a file in HADOOP_CONF_DIR cannot be read.
        """
        return default_file_system(self.hadoop(DEFAULT_FS))

    def hadoop_settings(self) -> HadoopSettings:
        """Return the Hadoop settings in Spark's `spark.hadoop.*`; credential files are not read."""
        # Imported late, because the module needs pyspark.
        from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings

        return HadoopSettings(
            self.hadoop,
            self.hadoop,
            os.environ.get,
            names_after=self._names_after,
            has_class=lambda name: self.has_library(_LIBRARIES.get(name, "")),
            set=lambda name, value: None,
        )

    def _names_after(self, prefix: str) -> list[str]:
        whole = _HADOOP + prefix
        return [name.removeprefix(whole) for name in self.values if name.startswith(whole)]

    def has_library(self, name: str) -> bool:
        """Return whether a jar is among Spark's own jars, or among the jars and packages that the settings name.

        `name` is the jar's name without its version, such as `hadoop-aws`; if it is empty, the result is false.
        """
        lists = ",".join(self.values.get(name, "") for name in _JAR_LISTS)
        return bool(name) and (bool(self._jars(name)) or f"{name}-" in lists or self.fetches(name))

    def fetches(self, name: str) -> bool:
        """Return whether `spark.jars.packages` names the jar `name`, such as `hadoop-aws`, so that Spark fetches it."""
        return f":{name}:" in self.values.get("spark.jars.packages", "")

    def hadoop_package(self, name: str) -> str:
        """Return the Maven coordinates of a Hadoop library, such as `hadoop-aws`, for `spark.jars.packages`.

        The version is the version of Hadoop among Spark's own jars, or 3.5.0 if there are no such jars here.
        """
        version = next((match[1] for jar in self._jars("hadoop-client-api")
                        if (match := re.search(r"-api-(\d[\w.]*)\.jar", jar.name))), "3.5.0")  # fmt: skip
        return f"org.apache.hadoop:{name}:{version}"

    def _jars(self, name: str) -> list[Path]:
        return sorted((self.home / "jars").glob(f"{name}-*.jar")) if self.home else []


def read_spark_conf(file: Path | None, assignments: Sequence[str] | None) -> SparkConf:
    """Return Spark's settings from a properties file, overridden by `assignments`.

    Args:
        file: properties file. If it is None, Spark's own `spark-defaults.conf` is read, if it exists.
        assignments: texts `name=value`, or None.

    Raises:
        ConfigurationError: the file cannot be read, or a text has no name or no `=`.
    """
    package = find_spec("pyspark")
    folder = os.environ.get("SPARK_HOME") or next(iter((package and package.submodule_search_locations) or ()), None)
    home = Path(folder) if folder else None
    if file is None:
        conf = os.environ.get("SPARK_CONF_DIR") or (home / "conf" if home else None)
        own = Path(conf, "spark-defaults.conf") if conf else None
        file = own if own and own.is_file() else None
    return SparkConf(spark_settings(file, assignments), home)
