"""All checks of a job, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tiered_stream.doctor.cluster_checks import check_cluster
from tiered_stream.doctor.environment import SETTINGS, check_environment
from tiered_stream.doctor.finding import Examination, Finding, Status
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.doctor.table_checks import check_table
from tiered_stream.doctor.tier_checks import check_tier

WELL, FAILED, REFUSED = 0, 1, 2


def examine(
    settings: Mapping[str, str], spark: SparkConf, tell: Callable[[Finding], None], *, write: bool
) -> list[Finding]:
    """Look at everything that a job with these settings needs; `tell` hears each finding at once.

    Nothing is changed anywhere, but with `write`, which puts and deletes an empty object in the table's store.
    """
    examination = Examination(tell)
    job = check_environment(examination, settings)
    cluster = check_cluster(examination, job)
    try:
        check_tier(examination, job, cluster)
        check_table(examination, job, cluster, spark, write=write)
    finally:
        if cluster.source.value is not None:
            cluster.source.value.close()
    return examination.findings


def exit_code(findings: Sequence[Finding]) -> int:
    """0: all is well, warnings or not; 2: the settings are refused; 1: something else failed."""
    failed = [each.check for each in findings if each.status is Status.FAILED]
    return REFUSED if SETTINGS in failed else FAILED if failed else WELL
