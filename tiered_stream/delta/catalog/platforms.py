"""Detection of managed Spark platforms, such as Databricks and Amazon EMR.

The signs of a platform are environment variables of its drivers, Spark settings that the platform makes, its Spark
version, and Java classes that exist only there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

_DATABRICKS_DELTA = "com.databricks.sql.transaction.tahoe.DeltaLog"
_DATAPROC_JARS = "/usr/local/share/google/dataproc/lib"
_AMAZON = re.compile(r"[-+]amzn[-.]")
_NEVER_TRIED = "this package was never tried there, see docs/guides/platforms.md"


@dataclass(frozen=True, slots=True)
class Platform:
    """Managed Spark platform: its name, and the sign that shows it, such as `GLUE_VERSION=6.0`."""

    name: str
    sign: str = ""
    commits_to_s3_itself: bool = False
    """True if the platform commits to Delta tables in S3 through a service of its own.

    That service coordinates only the platform's own writers. So a commit of another writer can be overwritten.
    """
    gives_credentials: bool = False
    """True if Spark can reach storage on this platform without credentials in the session's settings."""

    def __str__(self) -> str:
        own = "it commits to tables in S3 through its own service; " if self.commits_to_s3_itself else ""
        return f"{self.name} ({self.sign}): {own}{_NEVER_TRIED}"


_DATABRICKS = Platform("Databricks", commits_to_s3_itself=True, gives_credentials=True)


def find_platform(
    environment: Mapping[str, str],
    setting: Callable[[str], str | None],
    spark_version: str,
    has_class: Callable[[str], bool],
) -> Platform | None:
    """Return the managed platform on which the driver runs, or None if there is no sign of a known platform.

    Args:
        environment: environment variables of the driver.
        setting: function that returns a Spark setting by name, or None if it is not set.
        spark_version: version that Spark reports, or an empty text if it is not known.
        has_class: function that returns whether the driver's JVM has a Java class.
    """

    def variable(name: str) -> str | None:
        return f"{name}={environment[name]}" if environment.get(name) else None

    def value(name: str, expected: str | None = None) -> str | None:
        given = setting(name)
        return f"{name}={given}" if given and expected in (None, given) else None

    dataproc_jars = _DATAPROC_JARS in environment.get("SPARK_DIST_CLASSPATH", "")
    signs = (
        (_DATABRICKS, variable("DATABRICKS_RUNTIME_VERSION")),
        (_DATABRICKS, value("spark.databricks.clusterUsageTags.sparkVersion")),
        (Platform("Microsoft Fabric", gives_credentials=True), value("spark.cluster.type", "trident")),
        (Platform("AWS Glue"), variable("GLUE_VERSION")),  # before EMR, because both have Amazon's versions of Spark
        (Platform("Amazon EMR Serverless"), variable("SERVERLESS_EMR_JOB_ID")),
        (Platform("Amazon EMR"), f"Spark {spark_version}" if _AMAZON.search(spark_version) else None),
        (Platform("Google Dataproc"), variable("DATAPROC_IMAGE_VERSION")),
        (Platform("Google's managed Spark"), "SPARK_DIST_CLASSPATH" if dataproc_jars else None),
    )
    platform = next((replace(platform, sign=sign) for platform, sign in signs if sign), None)
    if platform is None and has_class(_DATABRICKS_DELTA):
        return replace(_DATABRICKS, sign=_DATABRICKS_DELTA)
    return platform
