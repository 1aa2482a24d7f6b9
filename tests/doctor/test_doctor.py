"""`tiered-stream doctor` on a real cluster, tier and lake: all is well there, and each planted fault is named."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.archives import PLAIN, archive_options
from tests.doctor.faults import FAULTS, S3A_TABLE, Fault
from tests.doctor.site import HADOOP_AWS, LAKE, Examined, Site, examined, site
from tests.gateway.running import RunningGateway
from tests.local_http import LocalHttp
from tests.rigs.stack.versitygw import why_no_versitygw
from tests.services import Cluster

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def where(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if missing := why_no_versitygw():
        pytest.skip(missing)
    with site(tmp_path_factory.mktemp("site"), cluster) as running:
        yield running


def found(examination: Examined, check: str) -> list[tuple[str, str]]:
    """The findings of the check that names begin with: status, and all the text."""
    return [
        (each["status"], f"{each['found']} | {each['fix']}")
        for each in examination.findings
        if each["check"].startswith(check)
    ]


def test_nothing_is_found_where_all_is_well(where: Site, tmp_path: Path) -> None:
    """With a table in the lake and an object written there, as a user with the least permissions."""
    settings = where.settings(tmp_path, {**where.login("alice"), **S3A_TABLE})
    examination = examined(settings, [HADOOP_AWS, *where.lake_conf()], "--write")
    assert examination.with_status("failed") == []
    assert examination.with_status("warning") == []
    assert examination.code == 0
    assert {each["check"] for each in examination.with_status("skipped")} == {
        "tiering of the topics",
        "signed locations",
    }
    assert "remote.log.locator=auto chooses metadata-topic" in found(examination, "locator")[0][1]
    assert "If-None-Match is honoured" in found(examination, "writing to the table's store")[0][1]
    assert where.lake.client().list_objects_v2(Bucket=LAKE).get("KeyCount") == 0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found_and_its_mend_is_named(where: Site, tmp_path: Path, fault: Fault) -> None:
    planted = fault.plant(where, tmp_path)
    examination = examined(where.settings(tmp_path, planted.settings), list(planted.spark_conf), *planted.flags)
    ((status, text),) = found(examination, fault.check)
    said, mend = text.split(" | ")
    assert (status, examination.code) == (fault.status, fault.code)
    assert fault.found in said
    assert fault.mend in mend
    assert "hunter2" not in examination.text
    assert all(each["fix"] for each in examination.with_status("failed"))
    # What does not need it is looked at all the same.
    assert found(examination, "Java")[0][0] == "ok"
    others = [each["check"] for each in examination.with_status("failed") if not each["check"].startswith(fault.check)]
    assert others == ([fault.also] if fault.also else [])


class _OtherTime(BaseHTTPRequestHandler):
    """Passes requests on to the tier; the answer's Date is an hour old."""

    tier = ""
    ahead = -3600.0

    def do_GET(self) -> None:
        request = urllib.request.Request(f"{self.tier}{self.path}", headers=dict(self.headers))
        try:
            with urllib.request.urlopen(request) as answer:
                status, head, body = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, head, body = error.code, error.headers, error.read()
        self.send_response_only(status)
        for name, value in head.items():
            if name.lower() not in ("date", "content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Date", formatdate(time.time() + self.ahead, usegmt=True))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize("ahead", [-3600, 400, -150])
def test_a_clock_that_is_off_is_a_warning_where_the_service_answers_all_the_same(
    where: Site, tmp_path: Path, ahead: float
) -> None:
    handler = type("Handler", (_OtherTime,), {"tier": where.stack.s3_endpoint, "ahead": ahead})
    with LocalHttp(handler) as server:
        examination = examined(where.settings(tmp_path, {"remote.storage.s3.endpoint.url": server.url}), [])
    ((said, text),) = found(examination, "clock")
    assert said == "warning"
    assert ("ahead of" if ahead < 0 else "behind") in text
    assert "clock" in text


class _Overwriting(BaseHTTPRequestHandler):
    """An S3 service as old ones are: a bucket that is always empty, and puts whatever the condition."""

    def do_GET(self) -> None:
        listed = "/?" in self.path or self.path.count("/") == 1 or "list-type" in self.path
        self._answer(200 if listed else 404, b"<ListBucketResult/>" if listed else b"")

    def do_HEAD(self) -> None:
        self._answer(404)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_DELETE(self) -> None:
        self._answer(204)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"0"')
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize(("commit", "status"), [("deltalake", "failed"), ("auto", "warning")])
def test_a_store_without_conditional_puts_is_found_where_deltalake_commits(
    where: Site, tmp_path: Path, commit: str, status: str
) -> None:
    with LocalHttp(_Overwriting) as server:
        conf = where.lake_conf(server.url)
        settings = where.settings(tmp_path, {"ingest.table": f"s3a://{LAKE}/orders", "ingest.commit": commit})
        examination = examined(settings, [HADOOP_AWS, *conf], "--write")
    ((said, text),) = found(examination, "writing to the table's store")
    assert said == status
    assert "If-None-Match is not honoured" in text
    assert "ingest.commit=spark" in text


def test_a_gateway_is_looked_through_and_a_host_that_it_may_not_lead_to_is_found(where: Site, tmp_path: Path) -> None:
    own = {"gateway.signed.location.lifetime.seconds": "600"}
    with RunningGateway(tmp_path / "gateway", {**where.stack.options(), **own}) as gateway:
        no_storage = {
            name: value for name, value in where.settings(tmp_path, {}).items() if "remote.storage" not in name
        }
        through = {**no_storage, "kafka.bootstrap.servers": gateway.bootstrap_servers}
        refused = examined(through, [])
        allowed = examined({**through, "remote.signed.location.hosts": where.stack.s3_endpoint}, [])
    ((status, text),) = found(refused, "signed locations")
    assert (status, refused.code) == ("failed", 1)
    assert "remote.signed.location.hosts" in text
    assert found(allowed, "signed locations")[0][0] == "ok"
    assert "the first segment of each partition: " in found(allowed, "tiered segments")[0][1]
    assert allowed.code == 0
    assert "remote.log.locator=auto chooses broker" in found(allowed, "locator")[0][1]
    assert found(allowed, "metadata topic")[0][0] == "skipped"
    assert "X-Amz" not in refused.text + allowed.text


def test_an_archive_is_examined_without_brokers() -> None:
    examination = examined(archive_options(PLAIN), [])
    assert (examination.code, examination.with_status("failed")) == (0, [])
    assert found(examination, "segment objects")[0][0] == "ok"
    assert found(examination, "brokers") == [("skipped", "remote.log.locator=archive needs no broker | ")]
