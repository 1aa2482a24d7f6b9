"""Addresses and secret tokens with which tasks of a session's queries send reports of metrics to the driver.

The driver passes addresses and tokens to tasks in an option of the source. The option's name contains `secret`, so
Spark redacts its value. The session's setting has the addresses without tokens, because Spark's event log shows
settings that a session changes. `EventLoggingListener` redacts only settings with which the application was started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from tiered_stream.model import ReportAddress
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.options.remote_options import REPORT_ADDRESSES, REPORTS_BY_LOOPBACK
from tiered_stream.spark.session import is_connect, is_local

_REPORT_TO = "spark.tiered_stream.report.to"
"""Setting in Spark's session: addresses to which tasks send reports, one for each call of `report_queries`."""
_WITH_TOKENS: dict[str, ReportAddress] = {}
"""Every address that this process has set, with its token, by the text (`host:port`) in the session's setting."""


def open_receiver(spark: SparkSession) -> MetricsReceiver:
    """Open a receiver for the metrics of the session's tasks.

    It listens at 127.0.0.1 if all tasks run on this machine. Otherwise it listens at the driver's address.
    """
    if _tasks_on_driver(spark) and not is_connect(spark):
        return MetricsReceiver()
    host, bind = spark.conf.get("spark.driver.host", None), spark.conf.get("spark.driver.bindAddress", None)
    return MetricsReceiver(host or "127.0.0.1", bind)


def session_addresses(spark: SparkSession) -> tuple[ReportAddress, ...]:
    """Return the addresses that `set_session_addresses` has set in this session, with their tokens."""
    texts = (spark.conf.get(_REPORT_TO, "") or "").split(",")
    return tuple(_WITH_TOKENS[text] for text in texts if text in _WITH_TOKENS)


def set_session_addresses(spark: SparkSession, addresses: Sequence[ReportAddress]) -> None:
    """Set the addresses to which tasks report, for streams that the session loads from now on; there may be none."""
    _WITH_TOKENS.update({each.place: each for each in addresses})
    text = ",".join(each.place for each in addresses)
    spark.conf.set(_REPORT_TO, text) if text else spark.conf.unset(_REPORT_TO)


def addresses_option(addresses: Sequence[ReportAddress]) -> str:
    """Return the value of the source's option `remote.metrics.secret.addresses` for these addresses."""
    return ",".join(address.to_option() for address in addresses)


def reporting_options(spark: SparkSession) -> dict[str, str]:
    """Return the source's options for reports of the session's queries.

    These options have the session's addresses. If tasks run on this machine, one option makes the planner's receiver
    listen at 127.0.0.1 only.
    """
    addresses = {REPORT_ADDRESSES.name: addresses_option(session_addresses(spark))}
    loopback = {REPORTS_BY_LOOPBACK.name: "true"} if _tasks_on_driver(spark) else {}
    return {name: value for name, value in (addresses | loopback).items() if value}


def with_reporting(reporting: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return the source's options with `reporting` (from `reporting_options`) added.

    If both have addresses for reports, the result has all of them.
    """
    name = REPORT_ADDRESSES.name
    texts = [value for key, value in options.items() if key.lower() == name] + [reporting.get(name, "")]
    others = {key: value for key, value in options.items() if key.lower() != name}
    addresses = ",".join(filter(None, texts))
    return {**others, **reporting, **({name: addresses} if addresses else {})}


def _tasks_on_driver(spark: SparkSession) -> bool:
    return is_local(spark.conf.get("spark.master", None))
