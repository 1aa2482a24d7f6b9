"""Which locator the options lead to, and what the log says of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from tests.broker.scripted import ScriptedClient, metadata
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.options.parsing import parse_options

NOBODY = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
TOPIC_AUTHORIZATION_FAILED = 29


def opened(**given: str) -> LogSource:
    return open_log_source(parse_options({**NOBODY, **given}, streaming=True))


def said(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(each.getMessage() for each in caplog.records if each.name == "tiered_stream.locate.log_source")


@pytest.fixture(autouse=True)
def _listen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tiered_stream.locate.log_source")


@pytest.mark.parametrize("given", [{"remote.log.locator": "none"}, {"kafka.fetch.remote.enabled": "false"}])
def test_without_a_locator_nothing_but_the_brokers_is_looked_for(
    tmp_path: Path, given: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scripted(monkeypatch, metadata())
    with caplog.at_level(logging.INFO):
        tier = opened(**{"remote.storage.uri": tmp_path.as_uri(), **given})
    assert tier.locator is None
    assert "remote.log.locator=none" in said(caplog)
    tier.close()


def test_auto_without_a_storage_leaves_all_to_the_brokers_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scripted(monkeypatch, metadata())
    tier = opened()
    assert tier.locator is None
    assert ": no remote.storage.uri" in said(caplog)
    tier.close()


def scripted(monkeypatch: pytest.MonkeyPatch, answer: Any, feature_version: int = 0) -> None:
    """Brokers that give `answer` to all but ApiVersions, and speak KIP-1248 in that version (0: not at all)."""
    features = (
        [ApiVersionsResponse.SupportedFeatureKey(LOCATION_FEATURE, 1, feature_version)] if feature_version else []
    )
    api_versions = ApiVersionsResponse(version=4, error_code=0, api_keys=[], supported_features=features)

    def answered(node_id: int, message: Any) -> Any:
        return api_versions if isinstance(message, ApiVersionsRequest) else answer

    monkeypatch.setattr(
        "tiered_stream.locate.log_source.open_client",
        lambda properties: ScriptedClient(answered, {"default.api.timeout.ms": "100"}),
    )


@pytest.mark.parametrize("locator", ["auto", "broker"])
@pytest.mark.parametrize(("version", "storage"), [(1, True), (2, True), (2, False)])
def test_brokers_that_say_where_segments_are_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locator: str, version: int, storage: bool
) -> None:
    scripted(monkeypatch, metadata(), version)
    given = {"remote.storage.uri": tmp_path.as_uri()} if storage else {}
    tier = opened(**given, **{"remote.log.locator": locator})
    assert tier.locator is not None and tier.locator.name == "broker"


@pytest.mark.parametrize(("version", "reason"), [(0, "stock brokers do not"), (1, "not signed")])
def test_a_broker_locator_that_cannot_be_had_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, version: int, reason: str
) -> None:
    scripted(monkeypatch, metadata(), version)
    with pytest.raises(ConfigurationError, match=reason):
        opened(**{"remote.log.locator": "broker"})


def test_without_a_fetcher_unsigned_locations_are_never_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, metadata(), 1)
    assert opened().locator is None


def test_a_metadata_topic_that_cannot_be_read_leaves_all_to_the_brokers_only_if_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scripted(monkeypatch, metadata(error_code=TOPIC_AUTHORIZATION_FAILED))
    place = {"remote.storage.uri": tmp_path.as_uri()}
    with pytest.raises(BrokerAuthorizationError, match="READ and DESCRIBE on the topic __remote_log_metadata"):
        opened(**place)
    assert opened(**place, **{"remote.fallback": "broker"}).locator is None
    assert ": __remote_log_metadata cannot be read" in said(caplog)


def test_auto_does_not_take_a_broker_that_is_away_for_one_without_a_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, None)
    with pytest.raises(BrokerUnavailableError):
        opened(**{"remote.storage.uri": tmp_path.as_uri()})


def test_a_storage_that_cannot_be_opened_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, metadata())
    with pytest.raises(ConfigurationError, match=r"remote\.storage\.uri"):
        opened(**{"remote.log.locator": "metadata-topic", "remote.storage.uri": "ftp://host/folder"})


@pytest.mark.parametrize("locator", ["auto", "metadata-topic"])
def test_a_stock_broker_is_followed_by_its_metadata_topic(
    stack: TieredStack, locator: str, caplog: pytest.LogCaptureFixture
) -> None:
    tier = opened(**stack.options(), **{"remote.log.locator": locator})
    assert tier.locator is not None and tier.locator.name == "metadata-topic"
    assert f"remote.log.locator={locator}: segments are located by metadata-topic" in said(caplog)
    tier.close()


def test_local_logs_are_preferred_where_that_is_wanted(stack: TieredStack) -> None:
    tier = opened(**stack.options(), **{"remote.prefer": "local"})
    assert tier.locator is not None and tier.locator.limit and tier.locator.name == "metadata-topic"
    tier.close()
