"""Spark's configuration as spark-submit would build it, read from Spark's files without starting Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from tiered_stream.delta.requirements.s3a import S3aSettings
from tiered_stream.delta.requirements.s3a_requirements import S3A_PREFIX
from tiered_stream.options.properties_files import parse_assignments, read_spark_properties

_HADOOP = "spark.hadoop."
_HADOOP_AWS = "org.apache.hadoop:hadoop-aws"
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
        """Return the file system of paths without a scheme (Hadoop: `fs.defaultFS`); `file:///` if it is not set."""
        return self.hadoop("fs.defaultFS") or "file:///"

    def s3a(self, bucket: str) -> S3aSettings:
        """Return the S3A settings (`fs.s3a.*`) with which Spark accesses the bucket of this name."""
        prefix = _HADOOP + S3A_PREFIX
        names = [name[len(prefix) :] for name in self.values if name.startswith(prefix)]
        return S3aSettings(
            bucket, self.hadoop, self.hadoop, os.environ.get, has_connector=self.has_hadoop_aws, names=names
        )

    @cached_property
    def has_hadoop_aws(self) -> bool:
        """True if hadoop-aws is among Spark's own jars, or among the jars and packages that the settings name."""
        lists = (self.values.get(name, "") for name in _JAR_LISTS)
        packages = self.values.get("spark.jars.packages", "")
        return bool(self._jars("hadoop-aws")) or "hadoop-aws-" in ",".join(lists) or f"{_HADOOP_AWS}:" in packages

    @property
    def missing_package(self) -> str:
        """Maven coordinates of hadoop-aws for `spark.jars.packages`, in the version of the Hadoop in Spark's jars.

        If Spark's jars are not found, the version is 3.5.0.
        """
        version = next((match[1] for jar in self._jars("hadoop-client-api")
                        if (match := re.search(r"-api-(\d[\w.]*)\.jar", jar.name))), "3.5.0")  # fmt: skip
        return f"{_HADOOP_AWS}:{version}"

    def _jars(self, name: str) -> list[Path]:
        return sorted((self.home / "jars").glob(f"{name}-*.jar")) if self.home else []


def read_spark_conf(file: Path | None, assignments: Sequence[str] | None) -> SparkConf:
    """Return Spark's settings from a properties file, overridden by `assignments`.

    Args:
        file: properties file; None: Spark's own `spark-defaults.conf`, or no file if that does not exist.
        assignments: texts `name=value`; None: no assignments.

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
    return SparkConf(
        {**(read_spark_properties(file) if file else {}), **parse_assignments(assignments, "--spark-conf")}, home
    )
