"""Kerberos logins at a real broker, with tickets of MIT's KDC."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.running import report
from tests.kerberos.kdc import REALM
from tests.kerberos.realm import ROWS, TOPIC, Realm
from tests.reading import log_end, log_end_by, options
from tests.rigs.stack.build import ROOT
from tests.services import SERVICE, TICKET_SESSION_MS
from tiered_stream import scan
from tiered_stream.broker.client import BrokerClient
from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerUnavailableError,
    ConfigurationError,
    TieredStreamError,
)

pytestmark = pytest.mark.stack


end, end_by = partial(log_end, topic=TOPIC), partial(log_end_by, topic=TOPIC)


@pytest.mark.parametrize("listener", ["GSS", "GSSTLS"])
def test_a_key_table_and_a_principal_log_in(here: Realm, listener: str) -> None:
    assert end_by(here.login(listener, here.by_keytab())) == ROWS
    assert here.kdc.issued("reader", SERVICE) > 0


def test_a_scan_reads_segments_and_brokers_by_a_kerberos_login(here: Realm) -> None:
    login = {f"kafka.{name}": value for name, value in here.login(jaas=here.by_keytab()).items()}
    for locator in ("auto", "none"):
        given = options(here.stack, TOPIC, {**login, "remote.log.locator": locator})
        assert sum(batch.num_rows for batch in scan(given)) == ROWS


def test_a_ticket_cache_logs_in(here: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, default = tmp_path / "named", tmp_path / "default"
    here.kdc.kinit("reader", here.keytab, named)
    shutil.copy(named, default)

    assert end_by(here.login(jaas=f'useTicketCache=true ticketCache="{named}"')) == ROWS
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{default}")
    assert end_by(here.login()) == ROWS
    assert end_by(here.login(jaas=f'useTicketCache=true principal="reader@{REALM}"')) == ROWS


def test_a_default_client_key_table_logs_in(here: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(here.keytab))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")

    assert end_by(here.login()) == ROWS


def test_a_key_table_logs_in_where_the_ticket_cache_has_no_valid_ticket(here: Realm, tmp_path: Path) -> None:
    both = f'useTicketCache=true ticketCache="{tmp_path / "none"}" {here.by_keytab()}'

    assert end_by(here.login(jaas=both)) == ROWS


CACHE = 'useTicketCache=true ticketCache="{}"'
WRONG: dict[str, tuple[Callable[[Realm, Path], dict[str, str]], type[TieredStreamError], str]] = {
    "missing ticket cache": (
        lambda here, folder: here.login(jaas=CACHE.format(folder / "none")),
        ConfigurationError, "No credentials cache found: get a ticket .kinit",
    ),
    "default ticket cache that is missing": (
        lambda here, _: here.login(),
        ConfigurationError, "user of the default ticket cache.*No Kerberos credentials.*kinit",
    ),
    "file that is no ticket cache": (
        lambda here, folder: here.login(jaas=CACHE.format(folder / "garbage")),
        ConfigurationError, "this file is no ticket cache",
    ),
    "another user's ticket": (
        lambda here, folder: here.login(jaas=f'{CACHE.format(folder / "expired")} principal="writer@{REALM}"'),
        ConfigurationError, "principal 'writer@EXAMPLE.TEST'.*the ticket is another user's",
    ),
    "missing key table": (
        lambda here, folder: here.login(jaas=here.by_keytab(keytab=folder / "none")),
        ConfigurationError, "keyTab = '.*none' is not a file.*--files",
    ),
    "principal that the key table does not have": (
        lambda here, _: here.login(jaas=here.by_keytab("writer")),
        ConfigurationError, "'writer@EXAMPLE.TEST' at 'kafka/127.0.0.1': the key table .* has no key of this princ",
    ),
    "principal that the KDC does not have": (
        lambda here, folder: here.login(jaas=here.by_keytab("gone", folder / "gone.keytab")),
        BrokerAuthorizationError, "'gone@EXAMPLE.TEST'.*the KDC knows no such user",
    ),
    "old key": (
        lambda here, folder: here.login(jaas=here.by_keytab("old", folder / "old.keytab")),
        BrokerAuthorizationError, "the key table has an old key: export it",
    ),
    "service name": (
        lambda here, _: here.login(jaas=here.by_keytab(), sasl_kerberos_service_name="broker"),
        ConfigurationError, "at 'broker/127.0.0.1': Server .* not found .*kafka.sasl.kerberos.service.name must",
    ),
    "old key of the broker": (
        lambda here, _: here.login("STALE", here.by_keytab(), sasl_kerberos_service_name="stale"),
        BrokerAuthorizationError, "refused the login.*clocks .* differ.*the broker's key table has the KDC's curr",
    ),
    "realm without KDC": (
        lambda here, _: here.login(jaas=here.by_keytab().replace(REALM, "OTHER.TEST")),
        ConfigurationError, "has no key of this",
    ),
    "expired ticket": (
        lambda here, folder: here.login(jaas=CACHE.format(folder / "expired"), default_api_timeout_ms="5000"),
        BrokerUnavailableError, "the ticket has expired: renew the ticket .kinit",
    ),
}  # fmt: skip
"""Logins that cannot be, their errors, and parts of the errors' texts."""


@pytest.fixture(scope="module")
def prepared(here: Realm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ticket that has expired, a file that is none, and key tables that do not log in."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "garbage").write_bytes(b"no table")
    begin = time.monotonic()
    here.kdc.kinit("reader", here.keytab, folder / "expired", "-l", "1s")
    shutil.move(here.kdc.add("old"), folder / "old.keytab")
    here.kdc.change_key("old")
    shutil.move(here.kdc.add("gone"), folder / "gone.keytab")
    here.kdc.remove("gone")
    time.sleep(max(0.0, begin + 2.5 - time.monotonic()))
    return folder


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kerberos_login_says_what_to_do(here: Realm, prepared: Path, what: str) -> None:
    login, kind, text = WRONG[what]

    with pytest.raises(kind, match=text):
        end_by(login(here, prepared))


def test_a_kdc_that_is_away_is_named_and_is_waited_for(
    here: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login, kdc = here.login(jaas=here.by_keytab()), here.kdc.copied(tmp_path / "kdc")
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    try:
        with pytest.raises(BrokerUnavailableError, match=r"Cannot contact any KDC.*correct krb5.conf"):
            end_by({**login, "default.api.timeout.ms": "5000"})
        with BrokerClient({**login, "default.api.timeout.ms": "60000"}) as client:
            coming = client.start(lambda: client.meet(client.deadline(), client.deadline(), advertised=True))
            kdc.start()
            coming.result()
            assert end(client) == ROWS
    finally:
        kdc.stop()


def test_sessions_that_the_broker_ends_cost_no_call(here: Realm) -> None:
    ends = time.monotonic() + 3 * TICKET_SESSION_MS / 1000
    with BrokerClient(here.login("GSSSHORT", here.by_keytab())) as client:
        while time.monotonic() < ends:
            assert end(client) == ROWS
            time.sleep(0.1)


PROGRAM = """
import json, sys
from tests.kerberos.test_kerberos_logins import end_by
try:
    print(end_by(json.loads(sys.argv[1])))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(shutil.which("faketime") is None, reason="there is no faketime (Debian: faketime)")
@pytest.mark.parametrize(
    ("offset", "by", "text"),
    [
        ("+10m", "keytab", str(ROWS)),  # the library learns the KDC's time
        ("+10m", "cache", "ConfigurationError .*Clock skew too great: set the clocks"),
        ("-10m", "cache", "ConfigurationError .*: set the clocks"),
    ],
)
def test_a_wrong_clock_is_named(here: Realm, tmp_path: Path, offset: str, by: str, text: str) -> None:
    cache = tmp_path / "tickets"
    here.kdc.kinit("reader", here.keytab, cache)
    jaas = here.by_keytab() if by == "keytab" else f'useTicketCache=true ticketCache="{cache}"'
    arguments = ["faketime", "-f", offset, sys.executable, "-c", PROGRAM, json.dumps(here.login(jaas=jaas))]

    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)

    assert re.match(text, done.stdout), done.stdout


def test_tickets_that_run_out_are_followed_by_others_and_no_call_fails(here: Realm) -> None:
    """Sessions end after 2 s and tickets after 6 s, so that sessions begin with tickets that came later."""
    short = here.kdc.add("short", "6 seconds")
    tickets = f"krbtgt/{REALM}"
    with BrokerClient(here.login("GSSSHORT", here.by_keytab("short", short))) as client:
        assert end(client) == ROWS
        before, begin = here.kdc.issued("short", tickets), time.monotonic()
        while here.kdc.issued("short", tickets) < before + 3 or time.monotonic() < begin + 8:
            assert end(client) == ROWS
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("missing key table", "keyTab = .* is not a file that this process can read"),
        ("old key", "the key table has an old key"),
        ("service name", "the KDC knows no such broker"),
    ],
)
def test_the_doctor_names_a_wrong_kerberos_login(here: Realm, prepared: Path, what: str, text: str) -> None:
    login = WRONG[what][0](here, prepared)
    given = options(here.stack, TOPIC, {f"kafka.{name}": value for name, value in login.items()})

    found = report("doctor", given, status=1)

    failed = [each for each in found["findings"] if each["status"] == "failed"]
    assert any(re.search(text, each["found"]) and each["fix"] for each in failed), failed
