from __future__ import annotations

import threading
import time

import pytest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.login.oauthbearer import LoginTokens, Token, read_token
from tiered_stream.broker.login.renewed_login import Refresh
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError

KAFKA = Refresh(factor=0.8, jitter=0.05, min_period=60, buffer=300)
PLAIN = Refresh(factor=0.8, jitter=0, min_period=2000, buffer=0)


class Source:
    """Tokens of ten thousand seconds, or the error that is set; `now` is the client's clock."""

    def __init__(self) -> None:
        self.given, self.now = 0, 1000.0
        self.error: Exception | None = None
        self.life: float | None = 10_000

    def obtain(self) -> Token:
        if self.error is not None:
            raise self.error
        self.given += 1
        return Token(f"t{self.given}", None if self.life is None else time.time() + self.life)

    def tokens(self, refresh: Refresh = PLAIN) -> LoginTokens:
        tokens = LoginTokens("kafka.x", self.obtain, refresh, {"a": "b"})
        tokens._clock = lambda: self.now
        return tokens


def test_a_token_is_handed_out_until_it_ends_and_another_is_asked_for_after_four_fifths_of_its_life() -> None:
    source = Source()
    tokens = source.tokens()
    assert not tokens.usable()

    tokens.renewal().result()
    source.now += 7_900
    assert (tokens.usable(), tokens.token(), source.given) == (True, "t1", 1)
    source.now += 200
    assert tokens.token() == "t1"  # still good, while another is asked for
    tokens.renewal().result()
    assert tokens.token() == f"t{source.given}" != "t1"


def test_a_token_that_has_ended_is_never_handed_out() -> None:
    source = Source()
    tokens = source.tokens()
    tokens.renewal().result()
    source.now += 10_001

    assert not tokens.usable()
    with pytest.raises(BrokerUnavailableError, match="no new token"):
        tokens.token()


def test_where_no_new_token_comes_the_one_before_is_used_until_its_end(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    tokens = source.tokens()
    tokens.renewal().result()
    source.now, source.error = source.now + 9_000, BrokerUnavailableError("the endpoint is down")

    tokens.renewal().result()
    assert tokens.token() == "t1"
    assert "the endpoint is down" in caplog.text
    source.now += 1_001
    with pytest.raises(BrokerUnavailableError, match="the endpoint is down"):
        tokens.renewal().result()


def test_one_token_is_asked_for_at_a_time() -> None:
    asked, go_on = [], threading.Event()

    def obtain() -> Token:
        asked.append(1)
        go_on.wait()
        return Token("t", None)

    tokens = LoginTokens("kafka.x", obtain, PLAIN, {})
    renewals = {id(tokens.renewal()) for _ in range(5)}
    go_on.set()
    tokens.renewal().result()
    assert len(renewals) == 1
    assert sum(asked) <= 2  # the last renewal may have come after the first had ended


def test_a_source_that_hangs_does_not_end_all_logins(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked again after two minutes, then after four, and so on."""
    source, never, asked = Source(), threading.Event(), []

    def obtain() -> Token:
        asked.append(1)
        if len(asked) < 3:
            never.wait()
        return Token("t", None)

    tokens = LoginTokens("kafka.x", obtain, PLAIN, {})
    tokens._clock = lambda: source.now
    hung = [tokens.renewal()]
    source.now += 119
    assert tokens.renewal() is hung[0]
    source.now += 2
    hung.append(tokens.renewal())
    source.now += 239
    assert tokens.renewal() is hung[1] is not hung[0]
    source.now += 2
    tokens.renewal().result()
    assert tokens.token() == "t"
    assert [each.done() for each in hung] == [False, False]
    assert caplog.messages == [f"kafka.x: nothing came in {each} s; it is asked again" for each in (120, 240)]
    never.set()


def test_a_renewal_that_ends_after_a_newer_one_does_not_replace_its_token() -> None:
    source, begun, goes_on = Source(), threading.Event(), threading.Event()

    def obtain() -> Token:
        if begun.is_set():
            return Token("newer", None)
        begun.set()
        goes_on.wait()
        return Token("older", None)

    tokens = LoginTokens("kafka.x", obtain, PLAIN, {})
    tokens._clock = lambda: source.now
    older = tokens.renewal()
    begun.wait()
    source.now += 121
    tokens.renewal().result()
    goes_on.set()
    older.result()
    assert tokens.token() == "newer"


def test_a_token_of_which_nobody_knows_the_end_is_used_and_asked_for_anew() -> None:
    source = Source()
    source.life = None
    tokens = source.tokens(KAFKA)
    tokens.renewal().result()
    source.now += 59
    assert (tokens.token(), source.given) == ("t1", 1)
    source.now += 2
    tokens.token()
    tokens.renewal().result()
    assert tokens.token() != "t1"


def test_a_token_that_had_ended_before_it_came_is_refused() -> None:
    source = Source()
    source.life = -1

    with pytest.raises(BrokerUnavailableError, match="ended"):
        source.tokens().renewal().result()


_never = threading.Event()


def blocks() -> str:
    _never.wait()
    return "t"


def test_a_call_does_not_wait_for_a_token_beyond_its_time() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
             "sasl.oauthbearer.token.provider": f"{__name__}.blocks"}  # fmt: skip
    nobody = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "500"}

    with BrokerClient({**nobody, **login}) as client, pytest.raises(BrokerUnavailableError) as raised:
        client.metadata()

    assert f"kafka.sasl.oauthbearer.token.provider = '{__name__}.blocks': " in str(raised.value)
    assert "500 ms" in str(raised.value)


@pytest.mark.parametrize(
    ("life", "chance", "after"),
    [(3600, 0, 2880), (3600, 1, 3060), (400, 0, 100), (362, 0.5, 62), (360, 0, 288), (10, 0, 8)],
)
def test_the_time_of_renewal_is_kafkas(life: float, chance: float, after: float) -> None:
    """Kafka: `ExpiringCredentialRefreshingLogin`; buffer and least period are left out where a life is too short."""
    assert KAFKA.after(life, chance) == pytest.approx(after)


def test_the_end_of_a_jwt_is_its_own_claim() -> None:
    assert read_token("origin", " a.eyJleHAiOiA3fQ.c\n", expires_at=1).expires_at == 7


@pytest.mark.parametrize(
    "text", ["opaque", "a.b.c", "a.e30.c", "a.bnVsbA.c", "a.eyJleHAiOiJ4In0.c", "~+/==", "a.W10.c"]
)
def test_a_token_that_says_nothing_of_its_end_has_the_given_one(text: str) -> None:
    assert read_token("origin", text, 7) == Token(text, 7)


@pytest.mark.parametrize("text", ["", "two words", "hunter2\x01auth=x", "hunter2\n\nx", "é", "a" * (1 << 21)])
def test_what_is_no_token_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no token") as raised:
        read_token("origin", text)

    assert "hunter2" not in str(raised.value)


def test_no_token_is_in_a_repr() -> None:
    source = Source()
    tokens = source.tokens()
    tokens.renewal().result()

    assert "t1" not in repr(tokens) + repr(Token("t1", None)) + repr(vars(tokens)["_current"])


def test_an_error_of_the_first_renewal_is_the_callers() -> None:
    source = Source()
    source.error = BrokerAuthorizationError("no")

    with pytest.raises(BrokerAuthorizationError, match="no"):
        source.tokens().renewal().result()
