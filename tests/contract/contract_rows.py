"""What Spark's `kafka` source does, a row a behaviour, and whether `tiered_stream` does the same.

Rows 1.x are its options and rules, rows 2.x what its own test suites show (Spark 4.2, `spark-sql-kafka-0-10`).
A test that proves a row is marked by the row's key: `@pytest.mark.contract("1.6 new partition from 0", ...)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How we compare; each but the first needs a reason."""

    SAME = "same"
    ON_PURPOSE = "different on purpose"
    PYTHON_API = "not possible in Spark's Python API"
    NOT_OURS = "does not apply"


@dataclass(frozen=True, slots=True)
class Row:
    """One behaviour of Spark's source; `why` says what is different here, and for what reason."""

    key: str
    does: str
    verdict: Verdict = Verdict.SAME
    why: str = ""


def _different(key: str, does: str, why: str) -> Row:
    return Row(key, does, Verdict.ON_PURPOSE, why)


def _impossible(key: str, does: str, why: str) -> Row:
    return Row(key, does, Verdict.PYTHON_API, why)


def _not_ours(key: str, does: str, why: str) -> Row:
    return Row(key, does, Verdict.NOT_OURS, why)


_ERRORS_AND_COLUMNS = (
    _impossible(
        "1.1 classes of errors",
        "`IllegalArgumentException`, `NumberFormatException` and others at `load()`",
        "PySpark shows ours as `AnalysisException`; in streams both are a `StreamingQueryException`",
    ),
    _impossible(
        "1.1 errors at load",
        "all of a batch query's options are checked at `load()`, some of a stream's",
        "`load()` does not name the kind of query: a value that only one kind refuses is refused when it runs",
    ),
    Row("1.3 columns", "seven, and with `includeHeaders` the headers, which are null where there are none"),
    Row("1.3 own schema", "is refused"),
)
_OPTIONS = (
    Row("1.2 names in any case", "option names in any case; unknown ones and a path are ignored"),
    _different(
        "1.2 subscribe",
        "topics by name, trimmed, repetitions dropped; one that is missing fails after the retries",
        "a topic that is missing at the start fails after 1 s, unless `fetchOffset.numRetries` is set",
    ),
    _different(
        "1.2 subscribePattern",
        "a Java regular expression that matches anywhere in a name; internal topics never match",
        "Python's regular expressions; forms with another meaning in Java are refused",
    ),
    Row("1.2 assign", "partitions by topic; those that do not exist are left out"),
    Row("1.2 one of the three", "exactly one of `subscribe`, `subscribePattern`, `assign`"),
    _different(
        "1.2 kafka.bootstrap.servers",
        "must be given",
        "the same, but an archive (`remote.log.locator=archive`) has none",
    ),
    Row("1.2 startingTimestamp", "goes before all other starts"),
    Row("1.2 startingOffsetsByTimestamp", "goes before `startingOffsets`"),
    Row("1.2 startingOffsets", "words in any case, or offsets by partition; a batch query must not start at latest"),
    Row("1.2 startingOffsetsByTimestampStrategy", "`error` or `latest`, for both forms of timestamps"),
    Row("1.2 endingTimestamp", "is for batch queries; a stream ignores any value"),
    Row("1.2 endingOffsetsByTimestamp", "is for batch queries; refused in a stream"),
    Row("1.2 endingOffsets", "is for batch queries; must not be earliest; refused in a stream"),
    Row("1.2 failOnDataLoss", "`true` or `false` and nothing else"),
    Row("1.2 includeHeaders", "`true` or `false` and nothing else"),
    Row("1.2 minPartitions", "a positive Int"),
    Row("1.2 maxRecordsPerPartition", "a positive Long"),
    _different(
        "1.2 maxOffsetsPerTrigger",
        "any Long: with 0 a stream never gets on, with less its offsets run backwards",
        "must be positive: with other values Spark loses records",
    ),
    Row("1.2 minOffsetsPerTrigger", "any Long, not above the most, in batch queries too"),
    Row("1.2 maxTriggerDelay", "a duration of Spark's"),
    Row("1.2 fetchOffset.numRetries", "attempts in all"),
    Row("1.2 fetchOffset.retryIntervalMs", "between attempts"),
    _different(
        "1.2 kafkaConsumer.pollTimeoutMs",
        "as long as `spark.network.timeout` by default",
        "120000 by default, which is that setting's own: a Python source does not see the session's settings",
    ),
    _different(
        "1.2 groupIdPrefix", "begins the names of consumer groups", "without effect: no consumer group is joined"
    ),
    _different("1.2 kafka.group.id", "the consumer group of the tasks", "a warning: no consumer group is joined"),
    Row("1.2 settings that the source decides", "five settings of Kafka's clients are refused whatever their value"),
    _different(
        "1.2 kafka.isolation.level",
        "`read_uncommitted` by default",
        "`read_committed` by default: rows of aborted transactions come only on request",
    ),
    _different(
        "1.2 other settings of Kafka's clients",
        "are theirs, and checked as they check them",
        "the same for settings that have an effect; each other one leads to a warning, whatever its value",
    ),
)
_CHECKPOINT = (
    Row("1.4 offset JSON", "the next offset to read, by topic and partition"),
    _different(
        "1.4 forms of JSON",
        "fractions are cut off, the last of a repeated key counts, quoted numbers are refused, `null` is 0",
        "the same, but refuses values that Jackson changes silently: numbers that wrap, text behind the object",
    ),
    _impossible(
        "1.4 file of initial offsets",
        "`sources/N/0` keeps where the stream started",
        "Spark gives a Python source no place for it: a note in `offsets/0` has the start of the first batch",
    ),
    Row("1.4 checkpoint before options", "a checkpoint beats every starting option"),
    _not_ours("1.4 future version of that file", "is refused", "there is no such file"),
    Row("1.4 no partitions", "a stream without a partition makes no batch with rows"),
    Row("1.4 planned but not committed", "a batch whose planning failed is planned again at the next start"),
)
_RESOLUTION = (
    Row("1.5 all partitions", "a map names every partition that is read and no other"),
    Row("1.5 timestamps", "stand for the first offset at or after them"),
    Row("1.5 no match at the start", "fails, or starts at the end; an empty partition never matches"),
    Row("1.5 no match at the end", "reads to the end"),
    Row(
        "1.5 timestamps -1 and -2",
        "stand for latest and earliest; the broker interprets other negative ones",
    ),
    Row("1.5 maps of a batch query", "start and end name the same partitions, and no start lies beyond its end"),
    _impossible(
        "1.5 late binding",
        "earliest and latest of a batch query are looked up by its tasks, at each execution",
        "Spark plans a Python source once for a DataFrame, at its first use: load it again to see new records",
    ),
    _different(
        "1.5 start beyond the end",
        "is refused once both are known, but not if `minPartitions` divides partitions: then nothing is read of it",
        "always refused",
    ),
    Row("1.5 lookups that fail", "are repeated, as often as `fetchOffset.numRetries` says"),
    Row("1.5 end below what was read", "is asked for again, then believed"),
)
_LOSS = (
    Row("1.6 new partition from 0", "is read from 0"),
    Row("1.6 new partition above 0", "is data loss, else read from its log start"),
    Row("1.6 new partition that is gone", "is data loss, else left out"),
    Row("1.6 partition that vanished", "is data loss, else dropped; should it come back, it is new"),
    Row("1.6 end below the start", "is data loss, else nothing is read and the offset moves down"),
    _different(
        "1.6 topic made again and longer",
        "goes unnoticed: the new topic's first records are never read",
        "is data loss by its id, which the offsets in the checkpoint have, too",
    ),
    Row("1.6 subscribed topic that is deleted", "fails whatever `failOnDataLoss` says"),
    Row("1.6 pattern that finds nothing any more", "idles"),
    Row("1.6 pattern that finds others", "is data loss, else goes on with them"),
    Row("1.6 range below the log start", "is data loss, else read from the log start"),
    Row("1.6 range beyond the log end", "is data loss, else read to the log end"),
    Row(
        "1.6 range beyond the last stable offset",
        "fails a batch query; if records may be lost, it reads to the last stable offset",
    ),
    Row("1.6 gap in the log", "is no loss after compaction, markers and aborted transactions"),
    Row("1.6 log start that moves during the read", "is data loss, else passed over"),
    Row("1.6 no progress for the poll timeout", "fails whatever `failOnDataLoss` says"),
    Row("1.6 names", "stand under `KAFKA_DATA_LOSS`"),
)
_SPLITTING = (
    Row("1.7 empty ranges", "give no task"),
    Row("1.7 maxRecordsPerPartition", "cuts each range into pieces of at most as many offsets"),
    Row("1.7 minPartitions", "are shared out in proportion, small ranges first"),
    Row("1.7 remainder", "goes to the later pieces if a division is not even"),
    _different(
        "1.7 fewest pieces",
        "one for each range that is not empty",
        "as many as `remote.split.bytes` asks for in the tier: small segments share a task, large ones are shared",
    ),
    _impossible("1.7 preferred executor", "keeps consumers where they were", "it has no preferred locations"),
    _different(
        "1.7 earliest and latest of a batch query",
        "are divided before they are known, so that `maxRecordsPerPartition` is ignored for them",
        "are looked up first: the option holds",
    ),
)
_LIMITS = (
    Row("1.8 shares", "in proportion to the lags, at least one offset a partition"),
    _different(
        "1.8 where a share ends",
        "anywhere",
        "where a tiered segment ends, if one does within the share: no byte is fetched by two batches",
    ),
    Row("1.8 shares of new partitions", "count from their log start, in the least from 0"),
    Row("1.8 least offsets", "are waited for, no longer than the delay; the first trigger does not wait"),
    Row("1.8 least and most", "work together, the least first"),
    Row("1.8 Trigger.Once", "takes all there is"),
    Row("1.8 AvailableNow", "honours the limit, and stops at what was there when it began"),
    Row("1.8 AvailableNow checks", "fail if its target no longer exists, with any `failOnDataLoss`"),
    _different(
        "1.8 least under AvailableNow",
        "may end the run before its target",
        "does not apply: an AvailableNow run reads all there was",
    ),
    Row("1.8 read_committed", "ends at the last stable offset"),
)
_NO_METRICS = "a Python source cannot report metrics into the progress; the job and the driver's log report the lag"
_NO_CONSUMER = "no consumer is made on the driver, and no group joined"
_ONCE = "a DataFrame that is loaded again does, see 1.5"
_NO_FILE = "there is no such file"
_ONE_VERSION = "there is one version of the source"
_SUITES = (
    Row("2.1", "latest: what was there is not read, what comes while the query is stopped is, and new partitions are"),
    Row("2.2", "earliest: the same, with all that was there"),
    Row("2.3", "a map of offsets with -2, -1, 0, 1 and 2: each partition starts there, and nothing is repeated later"),
    Row("2.4", "a map of timestamps: rows from these times on"),
    Row("2.5", "one timestamp: the same"),
    Row("2.6", "a map of timestamps, one without a match: fails, or that partition delivers what comes later"),
    Row("2.7", "the same with one timestamp"),
    _impossible("2.8", "the class is a format, too", "a Python source has a name and no class in the JVM"),
    Row("2.9", "a partition without late rows that is given an earlier time delivers from there"),
    Row("2.10", "ending offsets are refused in a stream"),
    Row("2.11", "a map of ending timestamps is refused in a stream"),
    Row("2.12", "a query must say what it reads"),
    Row("2.13", "and in one way only"),
    Row("2.14", "an empty `assign`, `subscribe` or `subscribePattern` is refused"),
    Row("2.15", "the least offsets of a trigger must not be above the most"),
    Row("2.16", "settings that the source decides are refused"),
    Row("2.17", "words and JSON in any case, defaults where nothing is given"),
    Row("2.18", "columns have their types, headers among them"),
    Row("2.19", "a query stops cleanly"),
    Row("2.20", "AvailableNow: a batch that failed is made again after partitions were added"),
    Row("2.21", "with asynchronous progress tracking nothing is lost at a restart"),
    Row("2.22", "AvailableNow: 15 rows with a limit of 5 are three batches"),
    Row("2.23", "AvailableNow: a topic made again with fewer partitions fails as lost partitions"),
    Row("2.24", "AvailableNow: a topic made again with fewer rows fails as an end below the target"),
    Row("2.25", "the initial offset outlives a restart"),
    Row("2.26", "the highest limit does not overflow"),
    Row("2.27", "a limit of 10 over lags of 101, 11 and 1 gives 8, 1 and 1, then 9 and 1"),
    Row("2.28", "a least of 15: the first trigger fires, a small one waits, enough fires, and so does the delay"),
    Row("2.29", "a least of 15 and a most of 20 together"),
    Row("2.30", "the progress counts as many input rows as were read"),
    Row("2.31", "a pattern's topic is deleted, another made: the query goes on where it may"),
    Row("2.32", "a pattern's only topic is deleted: no empty offset is logged"),
    Row("2.33", "a topic made again between two runs, and shorter, is data loss"),
    _not_ours("2.34", "the file of initial offsets begins with a zero byte", _NO_FILE),
    _not_ours("2.35", "initial offsets of Spark 2.1.0 are read", _NO_FILE),
    _not_ours("2.36", "a file of a future version is refused", _NO_FILE),
    Row("2.37", "a watermark on `timestamp`"),
    Row("2.38", "a topic that a pattern found is deleted during the query, which goes on where it may"),
    Row("2.39", "a union of two limited streams goes on when one of them has no more"),
    _not_ours("2.40", "the group's prefix is honoured", _NO_CONSUMER),
    _not_ours("2.41", "the group's id is honoured", _NO_CONSUMER),
    Row("2.42", "a stream joined with itself"),
    Row("2.43", "read_committed with a limit: open transactions are hidden, aborted ones passed over"),
    Row("2.44", "read_uncommitted: rows of aborted transactions are there"),
    Row("2.45", "rows of one batch do not leak into the next"),
    Row("2.46", "keys and values that are null"),
    Row("2.47", "`minPartitions` of 6 over three partitions: at least six tasks, and all rows"),
    Row("2.48", "a timestamp beyond microseconds of 64 bits fails the query with its name"),
    _not_ours("2.49", "a setting chooses between two versions of the source", _ONE_VERSION),
    Row("2.50", "`minPartitions` that is no number, or none that is positive, is refused"),
    Row("2.51", "a checkpoint of an older Spark, without headers, goes on"),
    *(_impossible(f"2.{number}", does, _NO_METRICS) for number, does in (
        (52, "metrics report three lags if there is a limit"), (53, "metrics of a lag of 0 without a limit"),
        (54, "metrics of partitions that were not read yet"), (55, "metrics before anything was read"),
    )),
    Row("2.56", "topics and partitions that come and go at random"),
    _impossible("2.57", "a batch query from earliest to latest; run again, it sees new rows", _ONCE),
    Row("2.58", "that is its default"),
    Row("2.59", "maps of offsets: an end that is given stays, -1 grows"),
    Row("2.60", "headers: none, two, a name twice"),
    Row("2.61", "maps of timestamps at both ends"),
    Row("2.62", "a start by timestamps and an end by offsets"),
    Row("2.63", "a start by offsets and an end by timestamps"),
    Row("2.64", "only a start, only an end"),
    Row("2.65", "one timestamp at both ends"),
    Row("2.66", "a start without a match fails"),
    Row("2.67", "one timestamp goes before a map of them, and that before offsets"),
    Row("2.68", "an end without a match reads to the log's end"),
    Row("2.69", "a union with itself has each row twice"),
    Row("2.70", "the log start moves between two runs: the second begins there"),
    Row("2.71", "bounds that cannot be are refused"),
    Row("2.72", "read_committed: open, aborted and committed transactions"),
    Row("2.73", "read_uncommitted: the same"),
    _impossible("2.74", "`minPartitions` of 6; the same DataFrame sees new rows", _ONCE),
    Row("2.75", "start and end that do not name the same partitions, or a start beyond its end, are refused"),
    Row("2.76", "so is a start that is found to lie beyond its end"),
    _not_ours("2.77", "a setting chooses between two versions of the source", _ONE_VERSION),
    Row("2.78", "without an option a range is a task, an empty one none"),
    Row("2.79", "as many tasks as ranges: nothing is divided"),
    Row("2.80", "one more: ranges of one offset stay whole"),
    Row("2.81", "4 tasks over 4 and 20 offsets: 1 and 3"),
    Row("2.82", "4 tasks over 1 and 1000 offsets: 1 and 3"),
    Row("2.83", "fewer tasks than ranges: nothing is divided; 10 offsets in 3 tasks are 3, 3 and 4"),
    Row("2.84", "6 tasks over 10, 10 and 1 offsets: 3, 3 and 1"),
    Row("2.85", "9 tasks over 10,000, 15,000 and 20,000 offsets: 2, 3 and 4"),
    Row("2.86", "6 tasks over 500, 12,000 and 15,001 offsets: 1, 2 and 3; over 1, 1 and 10,000: 1, 1 and 4"),
    Row("2.87", "at most 4 offsets a task: 4 stay, 5 become 2 and 3"),
    Row("2.88", "at most 20 a task: 39, 49 and 59 become 2, 3 and 3"),
    Row("2.89", "the same with a least of 1 task, two; of 4, four"),
    Row("2.90", "both isolation levels, and none other"),
    _different("2.91", "words stay on the outer pieces of divided ranges", "they are looked up first, see 1.7"),
    _different("2.92", "the same with two partitions", "they are looked up first, see 1.7"),
    Row("2.93", "maps that lack a partition fail by name"),
    Row("2.94", "an error that passes is tried away, one that stays surfaces"),
    Row("2.95", "options in lower and upper case"),
    Row("2.96", "each way to name topics assigns its partitions"),
    Row("2.97", "offset JSON is read and written"),
    Row("2.98", "records that aged out before they were read: no row twice, those that are left"),
    Row("2.99", "a task that is tried again has connections of its own; tasks at once do not disturb each other"),
    _not_ours("2.100", "continuous and real-time mode, delegation tokens", "there are no such modes; see Limits"),
)  # fmt: skip
ROWS = (*_ERRORS_AND_COLUMNS, *_OPTIONS, *_CHECKPOINT, *_RESOLUTION, *_LOSS, *_SPLITTING, *_LIMITS, *_SUITES)
