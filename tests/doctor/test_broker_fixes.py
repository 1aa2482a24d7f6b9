from __future__ import annotations

from collections.abc import Mapping

import pytest

from tiered_stream.doctor.broker_fixes import kafka_tool, login_fixes, request_fixes
from tiered_stream.errors import BrokerAuthorizationError

SERVERS = {"bootstrap.servers": "one:9098, two:9098"}


def by(mechanism: str) -> dict[str, str]:
    return {**SERVERS, "security.protocol": "sasl_ssl", "sasl.mechanism": mechanism}


@pytest.mark.parametrize(
    ("kafka", "mend", "other"),
    [
        (by("PLAIN"), "username and password", "clientId"),
        (by("scram-sha-512"), "username and password", "clientId"),
        (by("OAUTHBEARER"), "clientId, clientSecret and scope", "username"),
        (by("AWS_MSK_IAM"), "kafka-cluster:Connect", "username"),
        (by("GSSAPI"), "kinit", "username"),
        ({"security.protocol": "SASL_SSL"}, "kinit", "username"),
        ({"security.protocol": "SSL"}, "client certificate", "username"),
    ],
)
def test_a_refused_login_is_mended_by_what_the_mechanism_goes_by(
    kafka: Mapping[str, str], mend: str, other: str
) -> None:
    said = login_fixes(kafka)[BrokerAuthorizationError]
    assert mend in said and other not in said


def test_a_command_for_kafkas_tools_can_be_run_as_it_is_given() -> None:
    grant = request_fixes(SERVERS)[BrokerAuthorizationError]
    assert "kafka-acls --bootstrap-server one:9098,two:9098 --add " in grant
    secured = request_fixes(by("PLAIN"))[BrokerAuthorizationError]
    assert "kafka-acls --bootstrap-server one:9098,two:9098 --command-config FILE --add " in secured
    assert kafka_tool("kafka-configs", {}, "--alter") == "kafka-configs --bootstrap-server HOST:PORT --alter"


def test_where_iam_grants_no_acl_is_advised() -> None:
    grant = request_fixes(by("AWS_MSK_IAM"))[BrokerAuthorizationError]
    assert "kafka-cluster:ReadData" in grant and "kafka-acls" not in grant
