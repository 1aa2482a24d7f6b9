"""Credentials of Azure's and Google's storage are canaries; what Spark and its workers write is searched for them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs

import obstore
import pytest
from Crypto.PublicKey import RSA

from tests.archives import PLAIN, archive_options
from tests.golden import golden
from tests.rigs.stack.azurite import ACCOUNT, Azurite, why_no_azurite
from tests.rigs.stack.fake_gcs import FakeGcs, why_no_fake_gcs
from tests.rigs.stack.processes import run_logged
from tests.rigs.stack.spark import spark_environment
from tests.secrets.canaries import Canaries
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.azure import AzureContainer

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]

BACKENDS = "io.aiven.kafka.tieredstorage.storage"


def pasted(backend: str, **properties: str) -> dict[str, str]:
    """The plugin's properties, as its broker would have them."""
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return {f"rsm.config.storage.{name}": value for name, value in {"backend.class": backend, **named}.items()}


def by_azure(canaries: Canaries, server: Azurite) -> dict[str, dict[str, str]]:
    """Every way to log in to Azure, and wrong ones."""
    server.create_container("tier")
    client = AzureContainer(StorageOptions(**server.options(), uri="az://tier")).connect(60)  # type: ignore[arg-type]
    for object_key, data in golden(PLAIN).objects():
        obstore.put(client, object_key, data)
    token = server.read_token("tier")
    canaries.given_out("SAS token", parse_qs(token)["sig"])
    connection = f"AccountName={ACCOUNT};AccountKey={server.key};BlobEndpoint={server.endpoint}"
    wrong_key = base64.b64encode(canaries.of("wrong account key").encode()).decode()
    place = {"azure__container__name": "tier", "azure__endpoint__url": server.endpoint}
    named = {**place, "azure__account__name": ACCOUNT}
    ways = {
        "key": {**named, "azure__account__key": server.key},
        "SAS": {**named, "azure__sas__token": token},
        "connection string": {**place, "azure__connection__string": connection},
        "wrong key": {**named, "azure__account__key": wrong_key},
        "wrong SAS": {**named, "azure__sas__token": token.replace("sp=rl", "sp=r")},
        "wrong string": {**place, "azure__connection__string": canaries.of("malformed connection string")},
        "wrong malformed key": {**named, "azure__account__key": canaries.of("malformed account key") + "!"},
    }
    return {name: pasted(f"{BACKENDS}.azure.AzureBlobStorage", **way) for name, way in ways.items()}


def by_google(folder: Path, canaries: Canaries, server: FakeGcs) -> dict[str, dict[str, str]]:
    """A service account's key as text, as a file, and a malformed one."""
    server.create_bucket("tier")
    for object_key, data in golden(PLAIN).objects():
        server.upload("tier", object_key, data)
    key = canaries.pem("private key", RSA.generate(2048).export_key("PEM", pkcs=8).decode())
    account = json.dumps(
        json.loads(server.credentials)
        | {"private_key": key, "private_key_id": canaries.of("key id"), "type": "service_account"}
    )
    file = folder / "account.json"
    file.write_text(account)
    place = {"gcs__bucket__name": "tier", "gcs__endpoint__url": server.endpoint}
    ways = {
        "JSON": {**place, "gcs__credentials__json": account},
        "file": {**place, "gcs__credentials__path": str(file)},
        "wrong JSON": {**place, "gcs__credentials__json": f'{{"private_key": "{canaries.of("malformed JSON")}"}}'},
    }
    return {name: pasted(f"{BACKENDS}.gcs.GcsStorage", **way) for name, way in ways.items()}


def test_no_secret_of_a_cloud_is_in_anything_that_is_written(tmp_path: Path, written: Path, canaries: Canaries) -> None:
    if missing := why_no_azurite() or why_no_fake_gcs():
        pytest.skip(missing)
    key = base64.b64encode(canaries.of("account key").encode()).decode()
    with Azurite(tmp_path / "azurite", key) as azure, FakeGcs(tmp_path / "google") as google:
        storages: Mapping[str, dict[str, str]] = {**by_azure(canaries, azure), **by_google(tmp_path, canaries, google)}
        sources = {name: archive_options(PLAIN, storage=storage) for name, storage in storages.items()}
        given = tmp_path / "given.json"
        given.write_text(json.dumps({"spark": {}, "sources": sources}))
        command = [sys.executable, "-m", "tests.secrets.cloud_program", str(given), str(written)]
        run_logged("the program", command, tmp_path / "spark.log", spark_environment())
    (tmp_path / "spark.log").rename(written / "spark.log")
    texts = {path.stem: path.read_text() for path in written.glob("*.txt")}
    failed = {name for name, text in texts.items() if "FAILED" in text}
    assert failed == {name for name in sources if name.startswith("wrong")}, {
        name: texts[name][-3000:] for name in failed
    }
    assert canaries.found_below(written) == {}
