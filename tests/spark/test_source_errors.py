"""Bad input to the source: one clear error that names the option or the object, and no secret."""

from __future__ import annotations

import gc
import re
from dataclasses import dataclass

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.process.late_reader import late_reader
from tests.reading import batch, options, stream, tier_segments
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.errors import StorageBucketNotFoundError
from tiered_stream.options.parsing import parse_options
from tiered_stream.spark.stream_reader import StreamReader

TOPIC = "for-errors"
WRONG_SECRET = "wrong-Secret-0815"
NOBODY_LISTENS = f"127.0.0.1:{free_ports(1)[0]}"


@dataclass(frozen=True)
class BadInput:
    """Options that cannot work, and what the error says of them."""

    given: dict[str, str]
    error: str


BAD_INPUTS = {
    "missing-bucket": BadInput(
        {"remote.storage.uri": "s3://no-such-bucket"},
        r"StorageBucketNotFoundError: the bucket no-such-bucket \(option remote\.storage\.uri\) does not exist",
    ),
    "wrong-secret-key": BadInput(
        {"remote.storage.aws.secret.access.key": WRONG_SECRET},
        r"StorageAccessError: no access to s3://kafka-tiered-storage/\S+\.log: .*"
        r"remote\.storage\.aws\.secret\.access\.key",
    ),
    "missing-folder": BadInput(
        {"remote.storage.uri": "file:///no/such/folder"},
        r"StorageBucketNotFoundError: the folder /no/such/folder \(option remote\.storage\.uri\) does not exist",
    ),
    "unknown-topic": BadInput(
        {"subscribe": "no-such-topic", "fetchOffset.numRetries": "1"},
        r"UnknownTopicError: no such topic: 'no-such-topic'",
    ),
    "broker-down": BadInput(
        {"kafka.bootstrap.servers": NOBODY_LISTENS, "kafka.default.api.timeout.ms": "5000"},
        rf"AbsentBrokerError: kafka\.bootstrap\.servers = '{NOBODY_LISTENS}': no broker can be reached: .* refused",
    ),
    "malformed-starting-offsets": BadInput(
        {"startingOffsets": '{"for-errors":{"0":"first"}}'},
        r"""ConfigurationError: option startingOffsets: .* has 'first' for for-errors-0, which is not an offset""",
    ),
    "unknown-option": BadInput(
        {"remote.storage.url": "s3://bucket"}, r"ConfigurationError: .*remote\.storage\.url.*remote\.storage\.uri"
    ),
}


@pytest.fixture(scope="module")
def tiered(stack: TieredStack) -> str:
    tier_segments(stack, TOPIC, [5])
    return TOPIC


@pytest.mark.contract("1.2 subscribe")
@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize("bad", BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
def test_bad_input_gives_one_clear_error(
    stack: TieredStack, spark: SparkSession, tiered: str, bad: BadInput, kind: str
) -> None:
    given = options(stack, tiered, bad.given)
    with pytest.raises(PySparkException) as raised:
        if kind == "batch":
            batch(spark, given).collect()
        else:
            query = stream(spark, given).writeStream.format("noop").trigger(availableNow=True).start()
            query.awaitTermination()
    message = str(raised.value)
    assert re.search(bad.error, message)
    assert "During handling of the above exception" not in message
    assert WRONG_SECRET not in message and stack.secret_key not in message


@pytest.mark.contract("1.2 kafkaConsumer.pollTimeoutMs", "1.6 no progress for the poll timeout")
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_task_fails_when_the_broker_gives_nothing_for_the_poll_timeout(
    stack: TieredStack, spark: SparkSession, tiered: str, fail_on_data_loss: str
) -> None:
    """The broker's own read of the segment fails for as long as the object is away."""
    given = {"remote.log.locator": "none", "kafkaConsumer.pollTimeoutMs": "700", "failOnDataLoss": fail_on_data_loss}
    (log,) = stack.tier_dir.glob(f"{tiered}-0-*/*.log")
    log.rename(away := log.with_suffix(".away"))
    try:
        with pytest.raises(PySparkException) as raised:
            batch(spark, options(stack, tiered, given)).collect()
    finally:
        away.rename(log)
    expected = r"FetchTimeoutError: .*cannot fetch record for offset 0 in 700 ms \(kafkaConsumer\.pollTimeoutMs\)"
    assert re.search(expected, str(raised.value))


def test_garbage_is_collected_again_after_a_query_that_could_not_be_planned() -> None:
    given = {"remote.log.locator": "archive", "remote.storage.uri": "file:///no/such/folder", "subscribe": TOPIC}
    reader = StreamReader(parse_options({**given, "remote.storage.layout": "aiven"}, streaming=True))
    with pytest.raises(StorageBucketNotFoundError, match="/no/such/folder"):
        reader.initialOffset()
    assert gc.isenabled()


def test_spark_reads_what_the_log_says_before_a_planner_that_fails_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"remote.log.locator": "archive", "remote.storage.uri": "file:///no/such/folder", "subscribe": TOPIC}
    reader = StreamReader(parse_options({**given, "remote.storage.layout": "aiven"}, streaming=True))
    with late_reader(monkeypatch) as (standard_error, read):
        print("a warning with the reason", file=standard_error)
        with pytest.raises(StorageBucketNotFoundError):
            reader.initialOffset()
    assert read == [b"a warning with the reason\n"]
