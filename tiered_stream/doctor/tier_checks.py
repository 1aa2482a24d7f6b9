"""Checks of the tiered storage: its bucket, and a sample of the segments that the locator names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from tiered_stream import errors
from tiered_stream.doctor.cluster_checks import Cluster
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import Examination, FaultError, Known, NotNeededError, Result, collected_warnings
from tiered_stream.locate.log_source import LogSource
from tiered_stream.locate.segment_metadata_locator import SegmentMetadataLocator
from tiered_stream.locate.storage_failures import check_place
from tiered_stream.locate.visible_segments import VisibleSegments
from tiered_stream.model import OffsetRange, PartitionRanges, RemoteLogSegment, SegmentLocation, TopicPartition
from tiered_stream.storage import cloud_endpoints as endpoints
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.open_fetcher import fetcher_for

_MAX_SAMPLE = 16
_ABSENT = "no remote.storage.uri is set: segments come from signed locations, or from the brokers"


@dataclass(frozen=True, slots=True)
class Located:
    """Tiered segments of the job's topics, grouped by partition, and in offset order within a partition.

    `signed` is the location of one segment in the storage, with a signed URL, or None if no location has a signed URL.
    `only_first` is True if only the first segment of each partition was located.
    """

    segments: tuple[RemoteLogSegment, ...]
    signed: SegmentLocation | None = None
    only_first: bool = False


Failures = Mapping[RemoteLogSegment, errors.TieredStreamError]
"""Error of each segment in the sample that could not be fetched, by segment."""


def check_tier(examination: Examination, job: Known[Job], cluster: Cluster) -> None:
    """Run all checks of the tiered storage: its settings, its bucket, and a sample of its segments."""
    check = examination.check
    fetcher = check("storage settings", _open_fetcher, job)
    listable = _check_bucket(examination, job, fetcher)
    located = check("tiered segments", _locate, cluster.source, cluster.ranges)
    check("segment objects", fetch_segments, fetcher, listable, located)
    check("signed locations", _follow_signed, job, located)


def _check_bucket(examination: Examination, job: Known[Job], fetcher: Known[RemoteStorageFetcher]) -> Known[bool]:
    """Check the bucket of the tiered storage; the value is True if the user is authorized to list the bucket.

    If the storage is a folder, or is read by the user's own class, no bucket is checked. The value is then True, or
    None if `fetcher` has no value.
    """
    options = job.value.options if job.value else None
    parts = urlsplit("" if options is None or options.fetcher_class else options.storage.uri or "")
    if options is not None and parts.scheme not in ("", "file", *endpoints.S3_SCHEMES):
        # Imported late, because importing obstore takes long and a folder does not need it.
        from tiered_stream.doctor.cloud_bucket import list_container

        return examination.check("bucket", lambda _: list_container(options.storage), fetcher)
    if options is None or parts.scheme not in endpoints.S3_SCHEMES:
        return Known("storage settings", True if fetcher.value else None)
    # Imported late, because importing boto3 takes long and a folder does not need it.
    from tiered_stream.doctor import s3_bucket
    from tiered_stream.doctor.clock import check_clock

    storage = options.storage
    examination.check("storage credentials", lambda _: s3_bucket.check_credentials(storage), fetcher)
    answer = examination.check("storage endpoint", lambda _: s3_bucket.list_one_key(storage), fetcher)
    examination.check("clock", check_clock, answer)
    return examination.check("bucket", lambda answer: s3_bucket.check_listing(storage, answer), answer)


def _open_fetcher(job: Job) -> Result[RemoteStorageFetcher]:
    options = job.options
    if options.fetcher_class is not None:
        return Result(fetcher_for(options), f"segments are read by {options.fetcher_class}")
    if options.storage.uri is None:
        raise NotNeededError(_ABSENT)
    return Result(fetcher_for(options), f"{options.storage.uri}, layout {options.storage.layout}")


def _locate(source: LogSource, ranges: PartitionRanges) -> Result[Located]:
    """Locate the job's tiered segments.

    If the locator lists segments, the result has all tiered segments of the job. If the locator asks brokers, the
    result has only the segment with the first offset of each partition, because all segments would take many requests.

    Raises:
        NotNeededError: the job uses no locator.
    """
    locator = source.locator
    if locator is None:
        raise NotNeededError("no locator is in use: see the check of the locator")
    from_brokers = ""
    with collected_warnings() as warned:
        if isinstance(locator, SegmentMetadataLocator):
            visible = locator.visible_of(list(ranges))
            located = Located(tuple(part.segment for partition in sorted(visible) for part in visible[partition]))
            from_brokers = _not_tiered(ranges, visible)
        else:  # all segments of a cluster would take many requests, so each partition's first offset is located
            first = {
                partition: OffsetRange(offsets.start, offsets.start + 1)
                for partition, offsets in ranges.items()
                if len(offsets)
            }
            located_first = locator.find_locations(first)
            locations = [location for of_partition in located_first.values() for location in of_partition]
            signed = next((location for location in locations if location.signed_url), None)
            located = Located(tuple(location.segment for location in locations), signed, only_first=True)
    if warned:
        return Result(located, "; ".join(warned), "the brokers send these partitions: repair what the message names")
    if not located.segments:
        fix = "wait until a segment is rolled (segment.ms, segment.bytes) and copied; else see the brokers' logs"
        return Result(located, "nothing is tiered yet", fix)
    return Result(located, f"{_counted(located)}{from_brokers}")


def _counted(located: Located) -> str:
    """Return a text with the number and size of the segments, which says if only first segments are counted."""
    size, count = sum(segment.size for segment in located.segments), len(located.segments)
    partitions = len({segment.topic_partition for segment in located.segments})
    if located.only_first:
        return (
            f"the first segment of each partition: {count:,}, {size:,} bytes; partitions: {partitions:,} "
            "(`tiered-stream plan` counts all segments)"
        )
    return f"{count:,} segments, {size:,} bytes; partitions: {partitions:,}"


def _not_tiered(ranges: PartitionRanges, visible: Mapping[TopicPartition, VisibleSegments]) -> str:
    """Return a text with the number of offsets that are read from the brokers; empty if all offsets are tiered.

    Args:
        ranges: offset range of each partition's log.
        visible: tiered segments of each partition, with the offsets that are read from each segment.
    """
    total = sum(map(len, ranges.values()))
    tiered = sum(
        len(part.offsets.intersect(offsets))
        for partition, offsets in ranges.items()
        for part in visible.get(partition, ())
    )
    if tiered >= total:
        return ""
    return f"; {total - tiered:,} of {total:,} offsets ({(total - tiered) / total:.1%}) come from the brokers"


def fetch_segments(fetcher: RemoteStorageFetcher, listable: bool, located: Located) -> Result[bool]:
    """Check that segments can be fetched: fetch a log byte and the offset index of each segment in a sample.

    The sample has at most 16 of the located segments.

    Args:
        listable: True if the user is authorized to list the bucket.

    Raises:
        FaultError, TieredStreamError: a segment cannot be fetched.
        NotNeededError: no segment is located.
    """
    if not located.segments:
        raise NotNeededError("no segment is known")
    sample = _spread(located.segments)
    failures: dict[RemoteLogSegment, errors.TieredStreamError] = {}
    for segment in sample:
        try:
            fetcher.fetch_log_segment(segment, 0, min(1, segment.size))
            fetcher.fetch_indexes(segment, {IndexType.OFFSET})
        except errors.TieredStreamError as error:
            failures[segment] = error
    if failures:
        raise _fault(fetcher, failures, len(sample) - len(failures), listable=listable)
    count = f"{len(sample)} of {len(located.segments)}" if len(sample) < len(located.segments) else f"all {len(sample)}"
    which = "first segments" if located.only_first else "segments"
    return Result(True, f"log and offset index of {count} {which} can be read")


def _spread(segments: Sequence[RemoteLogSegment]) -> list[RemoteLogSegment]:
    """Return an even sample of at most 16 segments, which includes the first and the last."""
    count = min(len(segments), _MAX_SAMPLE)
    return [segments[at * (len(segments) - 1) // max(1, count - 1)] for at in range(count)]


def _fault(
    fetcher: RemoteStorageFetcher, failures: Failures, fetched: int, *, listable: bool
) -> FaultError | errors.TieredStreamError:
    """Return the error for a sample in which segments could not be fetched.

    The error is a FaultError with advice, or an error of the sample whose message has advice.

    Args:
        failures: segments of the sample that could not be fetched, with their errors.
        fetched: number of segments in the sample that could be fetched.
        listable: True if the user is authorized to list the bucket, so that S3 reports missing objects as missing.

    Raises:
        ConfigurationError: the settings name a wrong bucket, folder, layout or prefix.
    """
    first = next(iter(failures.values()))
    if isinstance(first, (errors.ConfigurationError, errors.StorageBucketNotFoundError)):
        return first
    refused = [error for error in failures.values() if isinstance(error, errors.StorageAccessError)]
    missing = [
        (each, error) for each, error in failures.items() if isinstance(error, errors.StorageObjectNotFoundError)
    ]
    for segment, error in dict(missing[:1] + missing[-1:]).items():
        check_place(fetcher, segment, error, lambda: fetched > 0)
    if missing or (refused and fetched and not listable):
        unfetched = [error for _, error in missing] or refused
        others = f" (and {len(unfetched) - 1} more)" if len(unfetched) > 1 else ""
        fix = "restore the object (from the bucket's versions), and find out what deletes there: a lifecycle rule?"
        if not fetched:
            fix = f"compare the settings of the storage with the brokers' own; if they agree, {fix}"
            return FaultError(f"{unfetched[0]}{others}", fix)
        return FaultError(f"{unfetched[0]}{others}, while {fetched} other segments can be read", fix)
    if refused:
        return refused[0]
    fix = "check remote.storage.layout and rsm.config.* against the brokers' own; if they agree, the object was changed"
    return FaultError(str(first), fix)


def _follow_signed(job: Job, located: Located) -> Result[bool]:
    """Check that the signed URL of a location works: fetch one byte of its segment by the URL.

    Raises:
        FaultError: the URL's host is not allowed, or the storage refuses the request or does not respond.
        NotNeededError: no location has a signed URL.
    """
    location = located.signed
    if location is None or location.signed_url is None:
        raise NotNeededError("no location is signed: there is no gateway, or it signs none")
    # Imported late, because only signed locations need urllib3.
    from tiered_stream.storage.signed.presigned import PresignedFetcher, signed_requests
    from tiered_stream.storage.signed.signed_hosts import parse_signed_url

    segment, url = location.segment, location.signed_url
    requests = signed_requests(job.options.storage)
    fetcher = PresignedFetcher({segment.segment_id: url}, lambda _: None, requests)
    try:
        origin = parse_signed_url(url).origin
        fetcher.fetch_log_segment(segment, 0, min(1, segment.size))
    except errors.SignedLocationError as error:
        raise FaultError(str(error), "add that host to remote.signed.location.hosts, if it is your storage") from None
    except errors.StorageError as error:
        fix = "open the network path to that host; if it refuses, check the gateway's own credentials and its clock"
        raise FaultError(str(error), fix) from None
    return Result(True, f"they lead to {origin}, which is allowed and responds")
