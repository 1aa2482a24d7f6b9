"""What is said of segments that are not where the settings say; a real cluster's are in `test_doctor`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden import MASKED, golden
from tests.locate.golden_locator import golden_table
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import Examination, FaultError, Known, Status
from tiered_stream.doctor.tier_checks import Located, _check_bucket, fetch_segments
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import parse_options
from tiered_stream.storage.open_fetcher import fetcher_for


def looked_at(bucket: Path, key_prefix: str) -> None:
    """Fetch a byte of segments of the masked set, some of which say themselves where they are."""
    given = {
        "kafka.bootstrap.servers": "broker:9092", "subscribe": "mc-codecs", "remote.storage.layout": "aiven",
        "remote.storage.uri": bucket.as_uri(), "rsm.config.key.prefix": key_prefix,
    }  # fmt: skip
    options = parse_options(given, streaming=True)
    segments = tuple(each for some in golden_table(MASKED).values() for each in some)
    fetch_segments(fetcher_for(options), True, Located(segments))


def test_a_wrong_prefix_is_found_where_only_some_segments_say_where_they_are() -> None:
    with pytest.raises(ConfigurationError, match=r"it is at .*: set rsm\.config\.key\.prefix=masked\.prefix/v1-$"):
        looked_at(golden(MASKED).bucket, "masked/")


def test_an_object_that_is_gone_is_to_be_restored(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    shutil.copytree(golden(MASKED).bucket, bucket)
    looked_at(bucket, "masked.prefix/v1-")
    for path in bucket.glob("masked.prefix/v1-mc-big-*/0/*.log"):
        path.unlink()
    with pytest.raises(FaultError, match=r"masked\.prefix/v1-mc-big-.*\.log") as fault:
        looked_at(bucket, "masked.prefix/v1-")
    assert "restore" in fault.value.fix


@pytest.mark.parametrize(("uri", "checks"), [("s4://tier", ["bucket"]), ("file:///tier", [])])
def test_the_bucket_of_each_store_but_a_folder_has_its_check(uri: str, checks: list[str]) -> None:
    given = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", "remote.storage.uri": uri}
    examination = Examination(lambda _: None)
    job = Known("settings", Job(parse_options(given, streaming=True), given, ()))
    assert _check_bucket(examination, job, Known("storage settings", None)).value is None
    assert [each.check for each in examination.findings] == checks
    assert all(each.status is Status.SKIPPED for each in examination.findings)
