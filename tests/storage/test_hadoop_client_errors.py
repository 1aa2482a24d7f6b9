"""Errors of the client of HDFS, whose texts are as hdfs-native 0.14 gives them."""

from __future__ import annotations

import pytest

from tiered_stream.kerberos_codes import Culprit
from tiered_stream.storage.hadoop.client_errors import login_fault, parts_of

GSSAPI = (
    'GSSAPIError(GssMajorCodes {{ raw: "0x{major:08x}", calling_error: "none", routine_error: "x", supplementary_info: '
    '"0x0000" }}, {minor}, "Unspecified GSS failure.  Minor code may provide more information: {text}")'
)


@pytest.mark.parametrize(
    ("major", "code", "text", "culprit", "advice"),
    [
        (
            13,
            -1765328347,
            "Clock skew too great",
            Culprit.SETUP,
            "Clock skew too great: set the clocks of this mach",
        ),
        (
            13,
            -1765328377,
            "Server not found",
            Culprit.SETUP,
            "the KDC knows no such name node: map its host",
        ),
        (13, -1765328237, "x", Culprit.SETUP, "x: write the principal and its realm exactly as the KDC has them"),
        (13, -1765328236, "Clock skew too great in KDC reply", Culprit.SETUP, "KDC reply: set the clocks"),
        (13, -1765328228, "Cannot contact any KDC", Culprit.SERVICE, "Cannot contact any KDC: open the way to the KDC"),
        (11, 100001, "x", Culprit.SERVICE, "the ticket has expired: renew the ticket"),
        (13, 1, 'what \\"this\\"', Culprit.USER, "'me@R': what \"this\": see the KDC's log"),
    ],
)
def test_a_login_that_fails_has_its_reason_and_the_fix(
    major: int, code: int, text: str, culprit: Culprit, advice: str
) -> None:
    error = RuntimeError(GSSAPI.format(major=major << 16, minor=code % (1 << 32), text=text))
    fault = login_fault(error, "me@R", None, "p.")
    assert fault is not None
    assert fault.culprit is culprit and advice in fault.advice, fault


def test_a_ticket_from_a_key_table_that_has_expired_shows_a_wrong_clock() -> None:
    error = RuntimeError(GSSAPI.format(major=11 << 16, minor=0, text="x"))
    fault = login_fault(error, "me@R", "/k", "p.")
    assert fault is not None and "clocks" in fault.advice


def test_a_missing_library_of_kerberos_is_named_with_its_packages() -> None:
    fault = login_fault(RuntimeError('OperationFailed("Failed to load libgssapi_krb")'), None, None, "p.")
    assert fault is not None and fault.culprit is Culprit.SETUP
    assert "libgssapi-krb5-2" in fault.advice and "krb5-libs" in fault.advice


@pytest.mark.parametrize("error", [TimeoutError(), RuntimeError('SASLError("Bad final token")')])
def test_another_error_is_no_fault_of_a_login(error: BaseException) -> None:
    assert login_fault(error, None, None, "p.") is None


def test_data_nodes_that_fail_are_named_by_their_addresses() -> None:
    node = 'DatanodeInfoProto { id: DatanodeIdProto { ip_addr: "10.0.0.%s", host_name: "x", xfer_port: 98%s } }'
    text = f'DataTransferError("All DataNodes failed: [{node % (1, 66)}, {node % (2, 67)}]")'.replace('"1', '\\"1')
    assert parts_of(RuntimeError(text)).text == "all data nodes failed: 10.0.0.1:9866, 10.0.0.2:9867"


def test_an_error_of_a_node_has_the_short_name_of_its_class() -> None:
    parts = parts_of(RuntimeError('RPCError("org.apache.hadoop.ipc.StandbyException", "not now\\nat x")'))
    assert str(parts) == "StandbyException not now"
