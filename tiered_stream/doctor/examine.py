"""Run all checks of `tiered-stream doctor` for a job, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tiered_stream.doctor import effective_settings as effective
from tiered_stream.doctor.cluster_checks import check_cluster
from tiered_stream.doctor.environment import SETTINGS, check_environment, check_platform, has_pyspark
from tiered_stream.doctor.finding import Examination, Finding, Status
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.doctor.tier_checks import check_tier

WELL, FAILED, REFUSED = 0, 1, 2


def examine(
    settings: Mapping[str, str], spark: SparkConf, report: Callable[[Finding], None], *, write: bool
) -> list[Finding]:
    """Run all checks of a job, pass each finding to `report` as soon as its check has ended, and return all findings.

    The checks change nothing, unless `write` is True: then an empty object is put into each table's store and deleted.

    Args:
        settings: settings of the job, by name.
        spark: configuration with which Spark would run the job.
    """
    examination = Examination(report)
    job = check_environment(examination, settings)
    if job.value is not None:
        examination.plugin_prefix = job.value.options.storage.plugin_prefix
    examination.check("effective settings", effective.describe_settings, job, most=effective.MAX_CHARACTERS)
    examination.check("Spark's settings", lambda: effective.describe_spark(spark), most=effective.MAX_CHARACTERS)
    examination.check("environment variables", effective.describe_environment)
    check_platform(examination, spark)
    cluster = check_cluster(examination, job)
    try:
        check_tier(examination, job, cluster)
        if has_pyspark():
            # Imported late, because these checks need pyspark.
            from tiered_stream.doctor.table_checks import check_table

            check_table(examination, job, cluster, spark, write=write)
        else:
            examination.skip("table", "pyspark is not installed")
    finally:
        if cluster.source.value is not None:
            cluster.source.value.close()
    return examination.findings


def exit_code(findings: Sequence[Finding]) -> int:
    """Return the exit code: 2 if the check of the settings failed, 1 if another check failed, else 0."""
    failed = [finding.check for finding in findings if finding.status is Status.FAILED]
    return REFUSED if SETTINGS in failed else FAILED if failed else WELL
