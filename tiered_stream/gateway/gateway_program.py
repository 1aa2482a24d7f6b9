"""The gateway as a program: until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import signal

from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.health_and_metrics import Monitor
from tiered_stream.gateway.server import Gateway

log = logging.getLogger(__name__)


def run_gateway(settings: GatewaySettings) -> None:
    """Serve until the process is asked to end.

    Raises:
        ConfigurationError: as `Gateway`.
        OSError: a port is taken.
    """
    asyncio.run(_serve(settings))


async def _serve(settings: GatewaySettings) -> None:
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    gateway = Gateway(settings)
    await gateway.start()
    monitor = Monitor(
        settings.monitor_host, settings.monitor_port, gateway.metrics.registry, lambda: gateway.unhealthy_reason
    )
    log.info("clients bootstrap from %s:%d", settings.advertised_host, gateway.bootstrap_port)
    try:
        await ended.wait()
        log.info("shutting down")
        await gateway.stop()
    finally:
        monitor.close()
