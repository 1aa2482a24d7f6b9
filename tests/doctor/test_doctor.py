"""`tiered-stream doctor` on a real cluster, tier and lake: all is well there, and each planted fault is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archives import PLAIN, archive_options
from tests.doctor.faults import FAULTS, S3A_TABLE, Fault
from tests.doctor.site import HADOOP_AWS, LAKE, Examined, Site, examined, site
from tests.gateway.running import RunningGateway
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
