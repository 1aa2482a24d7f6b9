"""Schemas by their ids: asked for once, or again where that helps; no answer is taken for what it is not."""

from __future__ import annotations

import itertools
import json
import pickle
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority, server_context
from tests.dripping import BODY, dripping
from tests.formats.scripted_registry import ScriptedRegistry
from tests.local_http import Answer
from tiered_stream.errors import (
    ConfigurationError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    UnknownSchemaError,
)
from tiered_stream.formats.registry import schema_registry as schema_registry_module
from tiered_stream.formats.registry.schema_registry import RegistrySettings, SchemaRegistry, schema_registry

SECRET = "s3cr3t"


@pytest.fixture
def registry(registry: ScriptedRegistry) -> ScriptedRegistry:
    registry.schemas[1] = {"schema": '"int"'}
    return registry


def client(*urls: str, **properties: str) -> SchemaRegistry:
    named = {name.replace("_", "."): each for name, each in properties.items()}
    return SchemaRegistry(RegistrySettings.parse({"url": ",".join(urls), **named}))


def test_a_schema_is_asked_for_once(registry: ScriptedRegistry) -> None:
    asking = client(registry.url)
    assert [asking.by_id(1).text for _ in range(3)] == ['"int"'] * 3
    assert registry.asked == ["/schemas/ids/1"]


def test_threads_that_want_the_same_schema_ask_once(registry: ScriptedRegistry) -> None:
    asking, first = client(registry.url), threading.Event()
    registry.answers.append(Answer(200, b'{"schema": "x"}', wait=first))
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(asking.by_id, 1) for _ in range(4)]
        first.set()
        assert {each.result().text for each in found} == {"x"}
    assert len(registry.asked) == 1


def test_an_unknown_id_is_not_asked_for_again_at_once(registry: ScriptedRegistry) -> None:
    asking = client(registry.url)
    for _ in range(3):
        with pytest.raises(UnknownSchemaError, match="7"):
            asking.by_id(7)
    assert registry.asked == ["/schemas/ids/7"]


def test_a_schema_comes_with_what_it_refers_to_in_the_order_that_it_needs(registry: ScriptedRegistry) -> None:
    def refer(name: str) -> list[dict[str, object]]:
        return [{"name": name, "subject": f"s/{name}", "version": 3}]

    registry.schemas[2] = {"schema": "top", "schemaType": "PROTOBUF", "references": refer("a") + refer("b")}
    registry.versions["s%2Fa", "3"] = {"schema": "of a", "references": refer("b")}
    registry.versions["s%2Fb", "3"] = {"schema": "of b"}
    found = client(registry.url).by_id(2)
    assert (found.kind, found.references) == ("PROTOBUF", (("b", "of b"), ("a", "of a")))
    assert len(registry.asked) == 3


@pytest.mark.parametrize("others", [["a"], ["b", "a"]])
def test_schemas_that_refer_to_each_other_are_refused(registry: ScriptedRegistry, others: list[str]) -> None:
    ring = ["a", *others]
    for name, after in itertools.pairwise(ring):
        reference = [{"name": after, "subject": after, "version": 1}]
        registry.schemas[2] = registry.versions[name, "1"] = {"schema": "x", "references": reference}
    with pytest.raises(SchemaRegistryError, match="itself"):
        client(registry.url).by_id(2)
    assert len(registry.asked) < 5


@pytest.mark.parametrize("references", [3, [3], [{"name": "a"}], [{"name": "a", "subject": "b", "version": "1"}]])
def test_malformed_references_are_refused(registry: ScriptedRegistry, references: object) -> None:
    registry.schemas[2] = {"schema": "x", "references": references}
    with pytest.raises(SchemaRegistryError, match="reference"):
        client(registry.url).by_id(2)


def test_a_reference_to_nothing_is_no_unknown_id(registry: ScriptedRegistry) -> None:
    registry.schemas[2] = {"schema": "x", "references": [{"name": "a", "subject": "a", "version": 1}]}
    with pytest.raises(SchemaRegistryError, match="not there") as caught:
        client(registry.url).by_id(2)
    assert not isinstance(caught.value, UnknownSchemaError)


def test_a_subject_may_have_two_names(registry: ScriptedRegistry) -> None:
    references = [{"name": name, "subject": "s", "version": 3} for name in ("a", "b")]
    registry.schemas[2] = {"schema": "top", "references": references}
    registry.versions["s", "3"] = {"schema": "text"}
    assert client(registry.url).by_id(2).references == (("a", "text"), ("b", "text"))


def test_a_schema_without_a_type_is_of_avro(registry: ScriptedRegistry) -> None:
    registry.schemas[2] = {"schema": "top", "schemaType": None}
    assert client(registry.url).by_id(2).kind == "AVRO"


def test_a_proxy_in_the_environment_leads_to_the_registry(
    registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", registry.url)
    assert client("http://registry.invalid").by_id(1).text == '"int"'
    assert registry.asked == ["http://registry.invalid/schemas/ids/1"]
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert client(registry.url).by_id(1).text == '"int"'
    monkeypatch.setenv("http_proxy", f"socks5://me:{SECRET}@127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY") as caught:
        client("http://registry.invalid")
    assert SECRET not in str(caught.value)


def test_the_latest_schema_of_a_subject_is_asked_for_anew(registry: ScriptedRegistry) -> None:
    asking = client(registry.url)
    for text in ("x", "y"):
        registry.versions["t-value", "latest"] = {"schema": text}
        assert asking.latest("t-value").text == text
    with pytest.raises(UnknownSchemaError, match="/subjects/other"):
        asking.latest("other")


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_request_that_fails_for_now_is_repeated(registry: ScriptedRegistry, status: int) -> None:
    registry.answers += [Answer(status)] * 2
    assert client(registry.url).by_id(1).text == '"int"'
    assert len(registry.asked) == 3


def test_another_server_is_asked_where_one_is_down(registry: ScriptedRegistry) -> None:
    with ScriptedRegistry() as closed:
        pass
    assert client(closed.url, registry.url).by_id(1).text == '"int"'
    with pytest.raises(SchemaRegistryUnavailableError, match=r"asked 5 times") as caught:
        client(closed.url).by_id(1)
    assert caught.value.retriable


def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry_module, "_READ_SECONDS", 0.1)
    monkeypatch.setattr(schema_registry_module, "_ROUNDS", 1)
    with dripping(*BODY, seconds=0.01) as (url, _), pytest.raises(SchemaRegistryUnavailableError, match="ReadTimeout"):
        client(url).by_id(1)


def test_an_answer_that_never_ends_is_given_up(registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry_module, "_MAX_BYTES", 1000)
    monkeypatch.setattr(schema_registry_module, "_ROUNDS", 1)
    registry.schemas[1] = {"schema": "x" * 2000}
    with pytest.raises(SchemaRegistryUnavailableError, match="longer"):
        client(registry.url).by_id(1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(404, b"<html>"), "responded to /schemas/ids/1 with 404; is this the address"),
        (Answer(404, b'{"error_code": 404}'), r"404 \(404\); is this the address"),
        (Answer(401, b"{}"), "401; check basic.auth.user.info"),
        (Answer(403, b"{}"), "403; may this user"),
        (Answer(200, b"[]"), "no object of JSON"),
        (Answer(200, b"{}"), "has no schema"),
        (Answer(200, b'{"schema": 3}'), "has no schema"),
        (Answer(302, b"", {"Location": "http://127.0.0.1:1/"}), "302; is this the address"),
    ],
)
def test_an_answer_that_is_no_schema_is_an_error(registry: ScriptedRegistry, answer: Answer, why: str) -> None:
    registry.answers.append(answer)
    with pytest.raises(SchemaRegistryError, match=why) as caught:
        client(registry.url).by_id(1)
    assert not isinstance(caught.value, UnknownSchemaError) and not caught.value.retriable
    assert len(registry.asked) == 1


def test_the_password_goes_to_the_registry_and_nowhere_else(registry: ScriptedRegistry) -> None:
    settings = RegistrySettings.parse({"url": registry.url, "basic.auth.user.info": f"me:{SECRET}"})
    SchemaRegistry(settings).by_id(1)
    assert registry.authorizations == {"Basic bWU6czNjcjN0"}
    assert SECRET not in repr(settings)
    registry.answers.append(Answer(401))
    with pytest.raises(SchemaRegistryError) as caught:
        SchemaRegistry(settings).by_id(1)
    assert SECRET not in str(caught.value)


def test_a_process_has_one_registry_for_the_same_settings(registry: ScriptedRegistry) -> None:
    settings = registry.settings
    assert schema_registry(settings) is schema_registry(pickle.loads(pickle.dumps(settings)))
    other = RegistrySettings.parse({"url": registry.url, "basic.auth.user.info": "me:x"})
    assert schema_registry(other) is not schema_registry(settings)


def test_a_registry_is_trusted_by_its_certificate_and_trusts_a_clients(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    trusted = authority.write(tmp_path / "ca.pem")
    server = authority.issue("registry").write(tmp_path / "server.pem")
    own = authority.issue("me", SECRET).write(tmp_path / "own.pem")
    context = server_context(server)
    context.load_verify_locations(trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    with ScriptedRegistry(context) as registry:
        registry.schemas[1] = {"schema": "x"}
        files = {"ssl_certificate_location": str(own), "ssl_key_password": SECRET}
        assert client(registry.url, ssl_ca_location=str(trusted), **files).by_id(1).text == "x"
        with pytest.raises(SchemaRegistryError, match=r"TLS .*ssl\.ca\.location"):
            client(registry.url, **files).by_id(1)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({}, "the property url is missing"),
        ({"url": " , "}, "the property url is missing"),
        ({"url": "ftp://a"}, "is not of the form"),
        ({"url": "http://a?b=c"}, "is not of the form"),
        ({"url": f"http://me:{SECRET}@a"}, "has a user in it"),
        ({"url": f"http://[{SECRET}"}, "is no URL"),
        ({"url": "http://a", "basic.auth.user.info": SECRET}, "not of the form user:password"),
        ({"url": "http://a", "ssl.key.location": "k"}, "has no ssl.certificate.location"),
        ({"url": "http://a", "ssl.truststore.location": "k"}, "no property ssl.truststore"),
        ({"url": "http://a", "ssl.ca.location": "/nothing"}, "ssl.ca.location: '/nothing' has no certificates"),
        ({"url": "http://a", "ssl.certificate.location": "/nothing", "ssl.key.password": SECRET}, "no certificate"),
    ],
)
def test_settings_that_cannot_be_are_refused(properties: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        SchemaRegistry(RegistrySettings.parse(properties))
    assert SECRET not in json.dumps(str(caught.value))
