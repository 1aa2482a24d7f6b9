from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.abc import SaslMechanism

import tiered_stream.broker.wire.kafka_python  # noqa: F401  # registers the mechanisms
from tests.broker.secure import PLAIN, SCRAM
from tests.without_packages import run_without
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.kerberos import KerberosIdentity, kerberos_identity
from tiered_stream.broker.login.sasl import parse_jaas, sasl_settings
from tiered_stream.errors import ConfigurationError

KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"

WITHOUT_GSSAPI = """
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.errors import ConfigurationError
kerberos = {"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "kafka"}
try:
    BrokerConfig.parse({"bootstrap.servers": "127.0.0.1:1", **kerberos})
except ConfigurationError as error:
    print(error)
"""


def settings(mechanism: str, jaas: str | None, protocol: str = "SASL_SSL", **more: str) -> dict[str, object]:
    properties = {"sasl.mechanism": mechanism, **more}
    if jaas is not None:
        properties["sasl.jaas.config"] = jaas
    return sasl_settings(ConfigValues(properties), protocol)


def test_username_and_password_come_from_the_jaas_entry() -> None:
    assert settings("PLAIN", f'{PLAIN} required username="alice" password="a=b;c";') == {
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "a=b;c",
    }


def test_a_jaas_entry_may_span_lines_and_use_either_quote_or_none() -> None:
    entry = parse_jaas(f"{PLAIN}\n  required\n  username=alice\n  password='it\"s' ;\n")

    assert entry.login_module == PLAIN
    assert entry.options == {"username": "alice", "password": 'it"s'}


@given(st.text(min_size=1))
def test_any_password_survives_quotes_and_escapes(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')

    assert parse_jaas(f'{PLAIN} required username="u" password="{quoted}";').options["password"] == password


@given(st.text())
def test_any_text_is_an_entry_or_a_configuration_error(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        assert parse_jaas(text).login_module


@pytest.mark.parametrize(
    "jaas",
    [
        f'{PLAIN} required username="u" password="hunter2"',
        f'{PLAIN} required username="u", password="hunter2";',
        f'{PLAIN} required username="u" password="hunter2;',
        f'{PLAIN} username="u" password="hunter2";',
        f'{PLAIN} required username="u" password=;hunter2',
        f'{PLAIN} required username="u" password="hunter2"; {PLAIN} required;',
        'username="u" password="hunter2";',
    ],
)
def test_a_malformed_jaas_entry_is_not_shown(jaas: str) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka.sasl.jaas.config") as raised:
        settings("PLAIN", jaas)

    assert "hunter2" not in str(raised.value)


def test_the_repr_of_a_jaas_entry_hides_its_options() -> None:
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN} required username="u" password="hunter2";'))


@pytest.mark.parametrize(
    ("mechanism", "jaas", "text"),
    [
        ("PLAIN", f'{PLAIN} required username="u";', "PLAIN .*password"),
        ("PLAIN", f'{SCRAM} required username="u" password="p";', "'PLAIN' .*PlainLoginModule"),
        ("OAUTHBEARER", f'{PLAIN} required username="u" password="p";', "needs OAuthBearerLoginModule"),
        ("SCRAM-SHA-512", None, r"kafka\.sasl\.jaas\.config .*SCRAM-SHA-512"),
        ("SCRAM-SHA-256", f'{SCRAM} required username="u" password="p" tokenauth="true";', "delegation tokens"),
        ("GSSAPI", None, r"kafka\.sasl\.kerberos\.service\.name "),
        ("DIGEST", None, r"kafka.sasl.mechanism = 'DIGEST'"),
    ],
)
def test_a_login_that_lacks_something_or_is_not_supported_is_named(mechanism: str, jaas: str | None, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        settings(mechanism, jaas)


def test_a_shaded_login_module_is_known_by_its_last_name() -> None:
    found = settings("PLAIN", f'kafkashaded.{PLAIN} required username="u" password="p";')

    assert found["sasl_plain_username"] == "u"


def test_scram_usernames_are_escaped_as_rfc_5802_wants() -> None:
    found = settings("scram-sha-256", f'{SCRAM} required username="a,b=c" password="p";')

    assert found["sasl_mechanism"] == "SCRAM-SHA-256"
    assert found["sasl_plain_username"] == "a=2Cb=3Dc"


def test_an_option_of_the_login_module_that_nobody_looks_at_is_named_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings("PLAIN", f"{PLAIN} required username=u password=p surplus=hunter2;")

    assert caplog.messages == ["kafka.sasl.jaas.config: surplus has no effect with PLAIN"]


@pytest.mark.parametrize(
    ("options", "identity"),
    [
        ("", KerberosIdentity(None, None, None)),
        ('principal="reader@EXAMPLE.COM"', KerberosIdentity("reader@EXAMPLE.COM", None, None)),
        ("useTicketCache=true", KerberosIdentity(None, None, "")),
        ('useTicketCache=true ticketCache="/tmp/other"', KerberosIdentity(None, None, "/tmp/other")),
        ("useKeyTab=true keyTab=a.keytab principal=reader", KerberosIdentity("reader", "a.keytab", None)),
        ("useKeyTab=TRUE keyTab='FILE:/a' principal=r useTicketCache=true", KerberosIdentity("r", "/a", "")),
    ],
)
def test_kerberos_options_choose_the_user(options: str, identity: KerberosIdentity) -> None:
    assert kerberos_identity(parse_jaas(f"{KERBEROS} required {options};").options) == identity


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("keyTab=/etc/reader.keytab", "keyTab has no effect without useKeyTab: add useKeyTab=true"),
        ("keyTab=/etc/reader.keytab useKeyTab=false", "keyTab has no effect without useKeyTab"),
        ("ticketCache=/tmp/other", "ticketCache has no effect without useTicketCache: add useTicketCache=true"),
        ("useKeyTab=true", "useKeyTab=true needs keyTab and principal: .*KRB5_CLIENT_KTNAME"),
        ("useKeyTab=true principal=reader", "useKeyTab=true needs keyTab"),
        ("useKeyTab=true keyTab=/etc/reader.keytab", "useKeyTab=true needs principal"),
    ],
)
def test_kerberos_options_that_would_let_somebody_else_log_in_are_refused(options: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        settings("GSSAPI", f"{KERBEROS} required serviceName=kafka {options};")


def test_comments_and_escapes_are_those_of_java() -> None:
    entry = parse_jaas(
        f"/* for\n the reader */ {PLAIN} required // by password\n"
        'username="\\u\\101" password="tab\\tbell\\7\\\\//\\9" ;'
    )

    assert entry.options == {"username": "uA", "password": "tab\tbell\x07\\//9"}


@pytest.mark.parametrize(
    ("mechanism", "name", "handler"),
    [
        ("PLAIN", "client", "software.amazon.msk.auth.iam.IAMClientCallbackHandler"),
        ("OAUTHBEARER", "login", "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"),
    ],
)
def test_a_java_callback_handler_that_nothing_stands_in_for_is_refused(mechanism: str, name: str, handler: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kafka.sasl.{name}.callback.handler.class = '{handler}'"):
        settings(mechanism, None, **{f"sasl.{name}.callback.handler.class": handler})


def test_the_callback_handler_of_msk_is_stood_in_for() -> None:
    handler = {"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"}

    assert settings("AWS_MSK_IAM", None, **handler)["sasl_mechanism"] == "AWS_MSK_IAM"


def test_kerberos_without_its_package_names_the_extra() -> None:
    done = run_without(["gssapi"], WITHOUT_GSSAPI)

    assert " gssapi" in done.stdout and "pip install 'tiered-stream[kerberos]'" in done.stdout


def test_msk_iam_needs_tls() -> None:
    jaas = "software.amazon.msk.auth.iam.IAMLoginModule required;"

    assert settings("AWS_MSK_IAM", jaas)["sasl_mechanism"] == "AWS_MSK_IAM"
    with pytest.raises(ConfigurationError, match=r"kafka\.security\.protocol = SASL_SSL"):
        settings("AWS_MSK_IAM", jaas, protocol="SASL_PLAINTEXT")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("iterations", ["i=1", "i=4095", "i=4096,i=4095", "i=0", "i=-4096"])
def test_no_proof_of_the_password_is_sent_for_few_iterations(mechanism: str, iterations: str) -> None:
    login = scram_login(mechanism)
    with pytest.raises(SaslAuthenticationFailedError, match="iterations of SCRAM.* fewer than 4,096"):
        login.receive(server_first(login, iterations))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_fewest_iterations_that_kafkas_client_takes_give_a_proof(mechanism: str) -> None:
    login = scram_login(mechanism)
    login.receive(server_first(login, "i=4096"))
    assert b",p=" in login.auth_bytes()


def scram_login(mechanism: str) -> SaslMechanism:
    """The login that a connection makes."""
    login: SaslMechanism = get_sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism, sasl_plain_username="u", sasl_plain_password="p"
    )
    return login


def server_first(login: SaslMechanism, iterations: str) -> bytes:
    nonce = login.auth_bytes().rpartition(b"r=")[2].decode()
    return f"r={nonce}more,s=c2FsdA==,{iterations}".encode()
