"""Each setting of the page of the Aiven plugin 1.1.1 has a verdict, and the verdict holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions, parse_options, parse_storage_options
from tiered_stream.options.plugin_properties import PLUGIN_PROPERTIES, plugin_property
from tiered_stream.options.types import Use
from tiered_stream.storage.hadoop.client_settings import hadoop_settings_of

PAGE = (Path(__file__).parent / "aiven_plugin_1.1.1.txt").read_text().split()
"""The names on the plugin's page docs/configs.rst at its tag v1.1.1, each with the prefix that the page gives it."""
BESIDE_THE_PAGE = (
    "storage.hdfs.root", "storage.hdfs.upload.buffer.size", "storage.hdfs.core-site.path",
    "storage.hdfs.hdfs-site.path", "storage.hdfs.conf.*", "storage.hdfs.auth.enabled",
    "storage.hdfs.auth.kerberos.principal", "storage.hdfs.auth.kerberos.keytab",
    "storage.oci.namespace.name", "storage.oci.bucket.name", "storage.oci.region",
    "storage.oci.multipart.upload.part.size", "storage.oci.storage.tier",
)  # fmt: skip
"""Settings of the plugin's classes HdfsStorageConfig and OciStorageConfig, which the page leaves out."""
PLUGIN = {"remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager"}
SECRET = "not-to-be-shown"

HONOURED: dict[str, tuple[str, Callable[[StorageOptions], object], object]] = {
    "storage.s3.bucket.name": ("tier", lambda read: read.uri, "s3://tier"),
    "storage.s3.region": ("eu-north-1", lambda read: read.s3_region, "eu-north-1"),
    "storage.s3.endpoint.url": ("http://s3:9000", lambda read: read.s3_endpoint_url, "http://s3:9000"),
    "storage.s3.path.style.access.enabled": ("true", lambda read: read.s3_path_style, True),
    "storage.aws.access.key.id": ("id", lambda read: read.access_key_id, "id"),
    "storage.aws.secret.access.key": (SECRET, lambda read: read.secret_access_key, SECRET),
    "storage.aws.session.token": (SECRET, lambda read: read.session_token, SECRET),
    "storage.gcs.bucket.name": ("tier", lambda read: read.uri, "gs://tier"),
    "storage.gcs.credentials.default": ("true", lambda read: read.gcs_credentials_path, None),
    "storage.gcs.credentials.json": (SECRET, lambda read: read.gcs_credentials_json, SECRET),
    "storage.gcs.credentials.path": ("/key.json", lambda read: read.gcs_credentials_path, "/key.json"),
    "storage.gcs.endpoint.url": ("http://gcs:4443", lambda read: read.gcs_endpoint_url, "http://gcs:4443"),
    "storage.azure.container.name": ("tier", lambda read: read.uri, "az://tier"),
    "storage.azure.account.name": ("mine", lambda read: read.azure_account_name, "mine"),
    "storage.azure.account.key": (SECRET, lambda read: read.azure_account_key, SECRET),
    "storage.azure.sas.token": (SECRET, lambda read: read.azure_sas_token, SECRET),
    "storage.azure.connection.string": (SECRET, lambda read: read.azure_connection_string, SECRET),
    "storage.azure.endpoint.url": ("http://az:1/mine", lambda read: read.azure_endpoint_url, "http://az:1/mine"),
    "storage.hdfs.root": ("/tier/x", lambda read: read.uri, "hdfs:///tier/x"),
    "storage.hdfs.core-site.path": ("/c.xml", lambda read: read.hdfs_core_site, "/c.xml"),
    "storage.hdfs.hdfs-site.path": ("/h.xml", lambda read: read.hdfs_hdfs_site, "/h.xml"),
    "storage.hdfs.auth.kerberos.principal": ("me@R", lambda read: read.hdfs_principal, "me@R"),
    "storage.hdfs.auth.kerberos.keytab": ("/k", lambda read: read.hdfs_keytab, "/k"),
    "storage.hdfs.conf.*": ("v", lambda read: read.rsm_config["storage.hdfs.conf.*"], "v"),
    "storage.oci.namespace.name": ("ns", lambda read: read.s3_endpoint_url, None),
    "storage.oci.region": ("eu-1", lambda read: read.s3_endpoint_url, None),
    "storage.root": ("/tier", lambda read: read.uri, "file:///tier"),
    "key.prefix": ("p/", lambda read: read.rsm_config["key.prefix"], "p/"),
}
"""A value of each honoured setting of the page, and what becomes of it."""


def parsed(name: str, value: str, **others: str) -> StorageOptions:
    given = {f"remote.{key.replace('__', '.')}": other for key, other in others.items()}
    return parse_storage_options({**PLUGIN, f"rsm.config.{name}": value, **given})


def test_the_page_was_read() -> None:
    assert len(PAGE) == 62


@pytest.mark.parametrize("name", [*PAGE, *BESIDE_THE_PAGE])
def test_each_setting_of_the_plugins_page_is_honoured_or_without_effect_or_refused(name: str) -> None:
    known = PLUGIN_PROPERTIES[name]
    assert known.doc
    if known.use is Use.HONOURED:
        value, read, wanted = HONOURED[name]
        assert read(parsed(name, value)) == wanted
    elif known.use is Use.NO_EFFECT:
        assert replace(parsed(name, "value"), rsm_config={}) == StorageOptions(layout=parsed(name, "").layout)
    else:
        with pytest.raises(ConfigurationError, match=f"rsm.config.{name}") as caught:
            parsed(name, SECRET)
        assert known.accepted or SECRET not in str(caught.value)
        assert all(parsed(name, value) for value in (*known.accepted, ""))


@pytest.mark.parametrize(
    "name,value,said",
    [
        ("segment.format", "iceberg", "iceberg"),
        ("storage.backend.class", "io.aiven.kafka.tieredstorage.storage.oss.OssStorage", "OssStorage"),
        ("storage.oci.bucket.name", "tier", "remote.storage.aws.access.key.id"),
        ("storage.oss.bucket.name", "tier", "remote.storage.s3.endpoint.url=https"),
        ("storage.aws.credentials.file", "/etc/aws", "remote.storage.aws.access.key.id"),
        ("storage.aws.certificate.check.enabled", "false", "AWS_CA_BUNDLE"),
        ("storage.proxy.host", "socks", "SOCKS"),
    ],
)
def test_a_setting_that_cannot_be_followed_is_refused_with_what_to_do(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"rsm.config.{name}.*{said}"):
        parsed(name, value)


def test_who_gives_credentials_or_a_place_in_the_readers_own_options_may_paste_the_brokers() -> None:
    keys = {"storage__aws__access__key__id": "id", "storage__aws__secret__access__key": "secret"}
    for name in ("storage.aws.credentials.file", "storage.aws.credentials.provider.class"):
        assert parsed(name, "a", **keys).access_key_id == "id"
    name = "storage.backend.class"
    assert parsed(name, "a", storage__uri="s3://copy").uri == "s3://copy"
    parse_storage_options({**PLUGIN, f"rsm.config.{name}": "a", "kafka.remote.storage.fetcher.class": "my.Fetcher"})


def test_oracles_storage_is_read_by_its_s3_interface_with_a_customer_secret_key() -> None:
    pasted = {"bucket.name": "tier", "namespace.name": "mine", "region": "eu-frankfurt-1"}
    own = {"remote.storage.aws.access.key.id": "id", "remote.storage.aws.secret.access.key": SECRET}
    given = {f"rsm.config.storage.oci.{name}": value for name, value in pasted.items()}
    read = parse_storage_options({**PLUGIN, **given, **own})
    assert (read.uri, read.s3_region, read.s3_path_style) == ("s3://tier", "eu-frankfurt-1", True)
    assert read.s3_endpoint_url == "https://mine.compat.objectstorage.eu-frankfurt-1.oraclecloud.com"


def test_the_plugins_hdfs_is_read_from_its_root() -> None:
    hdfs = "io.aiven.kafka.tieredstorage.storage.hdfs.HdfsStorage"
    conf = {"rsm.config.storage.hdfs.conf.fs.defaultFS": "hdfs://mine", "rsm.config.storage.backend.class": hdfs}
    for root, uri in (
        (None, "hdfs:///"),
        ("/", "hdfs:///"),
        ("/a/b/", "hdfs:///a/b"),
        ("hdfs://other:8020/a", "hdfs://other:8020/a"),
    ):
        given = {**PLUGIN, **conf, **({"rsm.config.storage.hdfs.root": root} if root else {})}
        read = parse_storage_options(given)
        assert read.uri == uri
        assert hadoop_settings_of(read)["fs.defaultFS"] == "hdfs://mine"
    assert parse_storage_options({"remote.storage.uri": "hdfs:///"}).uri == "hdfs:///"


def test_key_pairs_by_any_id_are_known() -> None:
    for name, use in (("private", Use.HONOURED), ("public", Use.NO_EFFECT)):
        known = plugin_property(f"encryption.key.pairs.key1.{name}.key.file")
        assert known is not None and known.use is use


def test_a_setting_that_is_unknown_is_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = {"rsm.config.key.prefx": "p/", "rsm.config.storage.s3.bucket.name": "b", "rsm.config.something.new": "1"}
    query = {"subscribe": "t", "remote.log.locator": "archive"}
    for parse in (parse_storage_options, partial(parse_options, streaming=False)):
        caplog.clear()
        parse({**PLUGIN, **given, **(query if parse is not parse_storage_options else {})})
        assert "rsm.config.key.prefx" in caplog.text and "bucket.name" not in caplog.text
    slip, unknown = sorted(caplog.messages)
    assert "rsm.config.key.prefix?" in slip and "rsm.config.something.new" in unknown and "?" not in unknown


def test_another_plugins_settings_are_not_looked_at() -> None:
    parse_storage_options({"remote.storage.layout": "local", "rsm.config.segment.format": "iceberg"})


def test_a_container_of_azure_is_no_credential() -> None:
    uri = "abfss://container@account.dfs.core.windows.net/tier"
    assert parse_storage_options({"remote.storage.uri": uri}).uri == uri
    for hidden in (f"abfss://container:{SECRET}@account.dfs.core.windows.net", f"s3://{SECRET}@bucket"):
        with pytest.raises(ConfigurationError, match=r"remote\.storage\.uri.* credentials") as caught:
            parse_storage_options({"remote.storage.uri": hidden})
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("uri", ["az://container/tier?sig={}", "hdfs://namenode/tier#{}", "file:///tier?{}"])
def test_a_uri_whose_end_would_be_ignored_is_refused_and_not_shown(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"remote\.storage\.uri.* \? or #") as caught:
        parse_storage_options({"remote.storage.uri": uri.format(SECRET)})
    assert SECRET not in str(caught.value)
