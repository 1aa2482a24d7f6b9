"""Checks of Kafka client properties that have no effect here: values that Kafka's clients refuse are errors.

Types and bounds are those of Kafka 3.9's `ConsumerConfig` and `AdminClientConfig`. Names of Java classes are not
checked.
"""

from __future__ import annotations

from tiered_stream.broker.properties.property_values import ConfigValues
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.types import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

_INTEGERS = {
    "auto.commit.interval.ms": (0, INT_MAX),
    "heartbeat.interval.ms": (INT_MIN, INT_MAX),
    "max.poll.interval.ms": (1, INT_MAX),
    "max.poll.records": (1, INT_MAX),
    "metrics.num.samples": (1, INT_MAX),
    "metrics.sample.window.ms": (0, LONG_MAX),
    "retries": (0, INT_MAX),
    "sasl.kerberos.min.time.before.relogin": (LONG_MIN, LONG_MAX),
    "sasl.login.connect.timeout.ms": (INT_MIN, INT_MAX),
    "sasl.login.read.timeout.ms": (INT_MIN, INT_MAX),
    "sasl.login.refresh.buffer.seconds": (0, 3600),
    "sasl.login.refresh.min.period.seconds": (0, 900),
    "sasl.login.retry.backoff.max.ms": (LONG_MIN, LONG_MAX),
    "sasl.login.retry.backoff.ms": (LONG_MIN, LONG_MAX),
    "sasl.oauthbearer.clock.skew.seconds": (INT_MIN, INT_MAX),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": (LONG_MIN, LONG_MAX),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": (LONG_MIN, LONG_MAX),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": (LONG_MIN, LONG_MAX),
    "session.timeout.ms": (INT_MIN, INT_MAX),
}
_BOOLEANS = (
    "allow.auto.create.topics",
    "auto.include.jmx.reporter",
    "enable.metrics.push",
    "exclude.internal.topics",
    "internal.leave.group.on.close",
    "internal.throw.on.fetch.stable.offset.unsupported",
    "sasl.oauthbearer.header.urlencode",
)
_WORDS_IN_ANY_CASE = {"group.protocol": ("consumer", "classic"), "metadata.recovery.strategy": ("rebootstrap", "none")}
_WORDS = {"metrics.recording.level": ("INFO", "DEBUG", "TRACE")}
_NOT_EMPTY = ("group.instance.id",)


def check_unused(values: ConfigValues) -> None:
    """Check properties without effect. Raises ConfigurationError if Kafka's clients would refuse a value."""
    for name, (low, high) in _INTEGERS.items():
        if name in values:
            values.integer(name, low=low, high=high)
    for name in filter(values.__contains__, _BOOLEANS):
        values.boolean(name)
    for name in filter(values.__contains__, _WORDS_IN_ANY_CASE):
        values.choice(name, _WORDS_IN_ANY_CASE[name])
    for name in filter(values.__contains__, _WORDS):
        values.word(name, _WORDS[name])
    for name in filter(values.__contains__, _NOT_EMPTY):
        if not values.text(name):
            raise ConfigurationError(f"kafka.{name} = '': must not be empty")
