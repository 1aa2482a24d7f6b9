"""The names of Kafka's client properties: those that are used here, and those that mean nothing to us."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection

_log = logging.getLogger(__name__)

_USED = """
bootstrap.servers check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms
fetch.max.bytes fetch.max.wait.ms fetch.min.bytes isolation.level max.partition.fetch.bytes metadata.max.age.ms
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms
retry.backoff.ms sasl.jaas.config sasl.kerberos.service.name sasl.mechanism security.protocol send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keystore.certificate.chain
ssl.keystore.key ssl.keystore.location ssl.keystore.type ssl.truststore.certificates ssl.truststore.location
ssl.truststore.type
"""
_WITHOUT_MEANING = """
allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset bootstrap.controllers
config.providers enable.auto.commit enable.metrics.push exclude.internal.topics group.id group.instance.id
group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes internal.leave.group.on.close
internal.throw.on.fetch.stable.offset.unsupported key.deserializer log_level max.poll.interval.ms max.poll.records
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms partition.assignment.strategy retries security.providers
session.timeout.ms share.acknowledgement.mode ssl.keymanager.algorithm ssl.keystore.password ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.password value.deserializer
"""
_PREFIXES_WITHOUT_MEANING = ("sasl.login.", "sasl.kerberos.", "sasl.oauthbearer.", "sasl.client.", "config.providers.")


def warn_of_unknown(names: Collection[str]) -> None:
    """Logs each unknown name, as Kafka's clients do: it is no error, since it may be meant for a plug-in of theirs."""
    used = _USED.split()
    for name in sorted(set(names).difference(used, _WITHOUT_MEANING.split())):
        if not name.startswith(_PREFIXES_WITHOUT_MEANING):
            near = "".join(f" (kafka.{used_name}?)" for used_name in difflib.get_close_matches(name, used, 1))
            _log.warning("kafka.%s is not a known Kafka client property%s", name, near)
