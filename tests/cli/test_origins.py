"""Errors and `doctor` name the settings that the user wrote, and where they were written."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from tests.stack.processes import free_ports
from tiered_stream.cli import app
from tiered_stream.errors import StorageBucketNotFoundError
from tiered_stream.options.command_settings import command_settings, origin_of, with_origins
from tiered_stream.options.parsing import parse_storage_options
from tiered_stream.storage.open_store import open_service, open_store

OURS = "option remote.storage.uri", "remote.storage."
PASTED = "setting rsm.config.storage.s3.bucket.name", "rsm.config.storage."
AIVEN = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
FILE = r"""# the job's settings

kafka.bootstrap.servers=127.0.0.1:%d
subscribe=\
    orders
startingOffsets=soon
kafka.ssl.key.password=hunter2
rsm.config.storage.s3.bucket.name=my-tier
rsm.config.storage.aws.secret.access.key=hunter3
rsm.config.storage.aws.access.key.id=hunter4
remote.log.storage.manager.class.name=io.aiven.kafka.tieredstorage.RemoteStorageManager
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.properties"
    path.write_text(FILE % free_ports(1)[0])
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_the_line_of_each_setting_is_known_after_comments_and_continued_lines(file: Path) -> None:
    command_settings(file, ["kafka.client.rack=a"], {"subscribe": "other"})
    assert origin_of("kafka.bootstrap.servers") == f"{file}, line 3"
    assert origin_of("STARTINGOFFSETS") == f"{file}, line 6"
    assert origin_of("subscribe") == origin_of("kafka.client.rack") == "command line"
    assert origin_of("remote.storage.uri") == ""


def test_an_error_names_the_file_and_the_line_of_the_setting(file: Path) -> None:
    ended = run("plan", "--settings", str(file))
    assert ended.exit_code == 2
    assert "option startingOffsets: 'soon'" in ended.output
    assert ended.output.strip().endswith(f"(startingOffsets: {file}, line 6)")


def test_a_setting_is_named_only_where_its_whole_name_occurs(file: Path) -> None:
    command_settings(file, None, {})
    for text in ("mysubscribe is wrong", "subscribePattern is wrong", "kafka.bootstrap.servers.more is wrong"):
        assert with_origins(text) == text
    assert with_origins("correct subscribe.") == f"correct subscribe. (subscribe: {file}, line 4)"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"remote.storage.uri": "s3://my-tier", "remote.storage.layout": "aiven"}, OURS),
        ({"rsm.config.storage.s3.bucket.name": "my-tier"}, PASTED),
        ({"rsm.config.storage.s3.bucket.name": "b", "remote.storage.uri": "s3://c"}, OURS),
    ],
)
def test_errors_about_a_bucket_name_the_setting_that_named_it(given: dict[str, str], place: tuple[str, str]) -> None:
    pasted = {"remote.log.storage.manager.class.name": AIVEN} if "remote.storage.layout" not in given else {}
    service = open_service(parse_storage_options({**given, **pasted}))
    assert (service.use.place, service.use.prefix) == place


def test_errors_about_a_folder_name_the_setting_that_named_it(tmp_path: Path) -> None:
    given = {"rsm.config.storage.root": str(tmp_path / "gone"), "remote.log.storage.manager.class.name": AIVEN}
    with pytest.raises(StorageBucketNotFoundError, match=r"gone \(setting rsm\.config\.storage\.root\) does not exist"):
        list(open_store(parse_storage_options(given)).list(""))


def test_doctor_lists_the_settings_with_their_origins_and_without_secrets(file: Path) -> None:
    ended = run("doctor", "--json", "--settings", str(file), "--option", "startingOffsets=earliest")
    (said,) = [
        each["found"] for each in orjson.loads(ended.stdout)["findings"] if each["check"] == "effective settings"
    ]
    assert f"subscribe=orders ({file}, line 4)" in said
    assert "startingOffsets=earliest (command line)" in said
    assert f"kafka.ssl.key.password=(hidden) ({file}, line 7)" in said
    assert "remote.storage.uri=s3://my-tier (from rsm.config.storage.s3.bucket.name)" in said
    assert "hunter" not in ended.output
