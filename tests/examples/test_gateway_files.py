"""The files of examples/gateway/ agree with the gateway's own settings. None of them is run."""

from __future__ import annotations

import ast
import re
from importlib.metadata import packages_distributions
from pathlib import Path
from textwrap import dedent

from packaging.utils import canonicalize_name

from conf.pack_gateway import ENTRY, LEFT_OUT, PARTS, locked_names, pinned
from tests.broker.certificates import CertificateAuthority
from tests.rigs.stack.build import ROOT
from tests.test_structure import PACKAGE
from tiered_stream.gateway.gateway_settings import KEYSTORE, GatewaySettings
from tiered_stream.options.given_options import declared
from tiered_stream.options.settings_files import read_settings

FOLDER = ROOT / "examples" / "gateway"
MANIFESTS = (FOLDER / "kubernetes.yaml").read_text("utf-8")
UNIT = (FOLDER / "tiered-stream-gateway.service").read_text("utf-8")
DOCKERFILE = (FOLDER / "Dockerfile").read_text("utf-8")
DEFAULTS = {name: option.default for name, option in declared(GatewaySettings).items()}


def manifest_settings(folder: Path) -> tuple[GatewaySettings, str]:
    """Return the parsed settings of the ConfigMap, and the path of the keystore in them."""
    block = re.search(r"^  gateway\.properties: \|\n((?:    .*\n)+)", MANIFESTS, re.MULTILINE)
    assert block
    (folder / "gateway.properties").write_text(dedent(block[1]))
    CertificateAuthority().issue("gateway").write(folder / "keystore.pem")
    raw = read_settings(folder / "gateway.properties")
    keystore = raw[KEYSTORE.name]
    raw |= {KEYSTORE.name: str(folder / "keystore.pem"), "kafka.security.protocol": "SASL_PLAINTEXT"}
    return GatewaySettings.parse(raw), keystore


def test_the_gateway_takes_the_settings_of_the_config_map(tmp_path: Path) -> None:
    settings, keystore = manifest_settings(tmp_path)
    assert f"mountPath: {Path(keystore).parent}," in MANIFESTS
    assert settings.monitor_host == "0.0.0.0"


def test_every_port_of_the_manifests_is_a_port_of_the_gateway(tmp_path: Path) -> None:
    settings, _ = manifest_settings(tmp_path)
    clients = {settings.bootstrap_port, *settings.broker_ports}
    assert set(map(int, re.findall(r", port: (\d+), targetPort", MANIFESTS))) == clients
    assert set(map(int, re.findall(r"containerPort: (\d+)", MANIFESTS))) == clients | {settings.monitor_port}
    probes = re.findall(r"httpGet: \{path: (\S+), port: (\S+)\}", MANIFESTS)
    assert probes == [("/health", "monitor"), ("/metrics", "monitor")]


def test_kubernetes_and_systemd_wait_for_open_requests(tmp_path: Path) -> None:
    settings, _ = manifest_settings(tmp_path)
    grace, pause = (re.findall(rf"{name}: \{{?(?:seconds: )?(\d+)", MANIFESTS)[0] for name in
                    ("terminationGracePeriodSeconds", "sleep"))  # fmt: skip
    assert int(grace) > int(pause) + settings.shutdown_seconds
    assert int(re.findall(r"TimeoutStopSec=(\d+)s", UNIT)[0]) > DEFAULTS["shutdown_seconds"]
    assert int(re.findall(r"LimitNOFILE=(\d+)", UNIT)[0]) > 2 * DEFAULTS["max_connections"]


def test_the_image_has_the_default_ports() -> None:
    ports, monitor_port = DEFAULTS["broker_ports"], DEFAULTS["monitor_port"]
    exposed = f"{DEFAULTS['bootstrap_port']} {ports[0]}-{ports[-1]} {monitor_port}"
    assert f"EXPOSE {exposed}\n" in DOCKERFILE
    assert f"http://127.0.0.1:{monitor_port}/health" in DOCKERFILE


def test_the_one_file_has_every_part_and_package_that_the_gateway_imports() -> None:
    """Late imports count, imports for type checkers do not."""
    packed = locked_names() | set(LEFT_OUT)
    providers = packages_distributions()
    seen: set[str] = set()
    waiting = [f"{ENTRY}.__main__"]
    while waiting:
        name = waiting.pop()
        path = module_file(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        part = path.relative_to(PACKAGE).parts[0]
        assert part in PARTS, name
        for imported in run_time_imports(ast.parse(path.read_text("utf-8"))):
            top = imported.split(".")[0]
            if top == "tiered_stream":
                waiting += [imported, imported.rpartition(".")[0]]
            elif top in providers:
                assert packed & {canonicalize_name(each) for each in providers[top]}, (name, imported)
    assert len(seen) > 100
    assert pinned(locked_names()).count("==") == len(locked_names())


def module_file(name: str) -> Path | None:
    place = PACKAGE.joinpath(*name.split(".")[1:])
    return next((each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file()), None)


def run_time_imports(node: ast.AST) -> list[str]:
    found: list[str] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            found += [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            found += [f"{child.module}.{alias.name}" for alias in child.names]
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            found += run_time_imports(child)
    return found
