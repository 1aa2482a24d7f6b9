"""Addresses to which tasks of a session's queries send reports, with tokens, on their way from the driver to tasks.

They travel as options. The option's name contains `secret`, so Spark redacts its values. A session's setting has the
addresses alone: Spark's event log shows what a session sets. `EventLoggingListener` redacts only the settings that the
application was started with.
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
"""Addresses with their tokens, by the text in the setting: all that this process has ever set."""


def open_receiver(spark: SparkSession) -> MetricsReceiver:
    """Open a receiver that the session's tasks reach: at the loopback interface if all tasks run on this machine."""
    if _tasks_on_driver(spark) and not is_connect(spark):
        return MetricsReceiver()
    host, bind = spark.conf.get("spark.driver.host", None), spark.conf.get("spark.driver.bindAddress", None)
    return MetricsReceiver(host or "127.0.0.1", bind)


def session_addresses(spark: SparkSession) -> tuple[ReportAddress, ...]:
    """Return the addresses that `set_session_addresses` has set."""
    texts = (spark.conf.get(_REPORT_TO, "") or "").split(",")
    return tuple(_WITH_TOKENS[text] for text in texts if text in _WITH_TOKENS)


def set_session_addresses(spark: SparkSession, addresses: Sequence[ReportAddress]) -> None:
    """Set the addresses to which tasks of streams that the session loads from now on report; there may be none."""
    _WITH_TOKENS.update({each.place: each for each in addresses})
    text = ",".join(each.place for each in addresses)
    spark.conf.set(_REPORT_TO, text) if text else spark.conf.unset(_REPORT_TO)


def addresses_option(addresses: Sequence[ReportAddress]) -> str:
    """Return the addresses in the form that the source's option for reports takes."""
    return ",".join(address.to_option() for address in addresses)


def reporting_options(spark: SparkSession) -> dict[str, str]:
    """Return the source's options for reports of the session's queries.

    They are the session's addresses and, if tasks run on this machine, the request to listen at the loopback interface.
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
