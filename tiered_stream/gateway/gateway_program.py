"""Gateway as a program: it raises the limit of open files, and runs until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tiered_stream.errors import TieredStreamError
from tiered_stream.gateway.gateway_settings import LISTENER_PROTOCOL, SIGNED_SECONDS, GatewaySettings
from tiered_stream.gateway.server import Gateway
from tiered_stream.observe.prometheus_endpoint import Monitor
from tiered_stream.options.remote_options import SIGNED_HOSTS
from tiered_stream.options.settings_files import file_settings
from tiered_stream.process.heap_and_gc import collect_old_rarely

log = logging.getLogger(__name__)

# Interval after which a decoding thread gives the GIL back to the event loop. The event loop releases the GIL at each
# read and write, about ten times a request. With Python's default of 5 ms, two busy threads delay a client by 100 ms.
_SWITCH_SECONDS = 0.0005


def run_gateway(config: Sequence[Path], *, verbose: bool) -> None:
    """Run the gateway with the settings in the files `config` until SIGTERM or Ctrl-C, and log to standard error.

    With `verbose`, lines for debugging are logged, too.

    Raises:
        ConfigurationError: a file cannot be read, or a setting is wrong.
        TieredStreamError: the bootstrap port or the monitor's port is in use.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("tiered_stream").setLevel(logging.DEBUG if verbose else logging.INFO)
    settings = GatewaySettings.parse(file_settings(*config))
    sys.setswitchinterval(_SWITCH_SECONDS)
    collect_old_rarely()
    try:
        asyncio.run(_serve(settings))
    except OSError as error:
        raise TieredStreamError(str(error)) from error


async def _serve(settings: GatewaySettings) -> None:
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    allowed = connections_allowed(settings.max_connections, len(settings.broker_ports))
    gateway = Gateway(replace(settings, max_connections=allowed))
    with _naming_port("gateway.monitor.port", settings.monitor_host, settings.monitor_port):
        monitor = Monitor(
            settings.monitor_host, settings.monitor_port, gateway.metrics.registry,
            lambda: gateway.unhealthy_reason, gateway.reasons,
        )  # fmt: skip
    try:
        with _naming_port("gateway.bootstrap.port", settings.listener_host, settings.bootstrap_port):
            await gateway.start()
        warn_of_plaintext(settings)
        name_signed_host(settings)
        log.info("clients bootstrap from %s:%d", settings.advertised_host, gateway.bootstrap_port)
        await ended.wait()
        log.info("shutting down")
        await gateway.stop()
    finally:
        monitor.close()


@contextmanager
def _naming_port(setting: str, host: str, port: int) -> Iterator[None]:
    """Put the name of the setting, the host and the port before the message of an OSError that the block raises."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{setting}: {host}:{port} cannot be listened at: {error}") from error


def name_signed_host(settings: GatewaySettings) -> None:
    """Log the host of signed URLs, and the option that allows it to readers without storage settings.

    Nothing is logged if the gateway signs no URLs, or if its settings name no endpoint of the storage.
    """
    storage = settings.storage
    endpoint = storage.s3_endpoint_url or storage.gcs_endpoint_url or storage.azure_endpoint_url
    if not endpoint or not settings.signed_location_seconds:
        return
    scheme, host = urlsplit(endpoint)[:2]
    in_subdomains = storage.s3_endpoint_url and not storage.s3_path_style
    hosts = f"{scheme}://{host}" + (f",{scheme}://*.{host}" if in_subdomains else "")
    log.info(
        "signed URLs lead to %s; readers without this storage in their settings need %s=%s",
        host, SIGNED_HOSTS.name, hosts,
    )  # fmt: skip


def warn_of_plaintext(settings: GatewaySettings) -> None:
    """Log a warning if the gateway signs URLs and sends them to clients without TLS."""
    if settings.listener_tls is None and settings.signed_location_seconds:
        log.warning(
            "%s=PLAINTEXT: a person who reads a signed URL on the network can read the whole object for %d seconds. "
            "Use SSL, or %s=0",
            LISTENER_PROTOCOL.name, settings.signed_location_seconds, SIGNED_SECONDS.name,
        )  # fmt: skip


_PER_CONNECTION = 2  # the connection to the client and the connection to the broker
_OTHERS = 256  # the gateway's own connections, threads, ports and files


def connections_allowed(wanted: int, ports: int) -> int:
    """Raise the soft limit of open files (`ulimit -n`) as needed; return how many client connections are allowed.

    The result is `wanted`. If the hard limit is too low for `wanted` connections and `ports` listening ports, the
    result is smaller (at least 1), and a warning is logged.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    needed = _PER_CONNECTION * wanted + ports + _OTHERS
    limit = max(soft, min(needed, hard))
    if limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    if limit >= needed:
        return wanted
    allowed = max(1, (limit - ports - _OTHERS) // _PER_CONNECTION)
    log.warning(
        "gateway.max.connections = %d needs %d open files, and this process may have %d (ulimit -Hn): "
        "at most %d connections are taken",
        wanted, needed, limit, allowed,
    )  # fmt: skip
    return allowed
