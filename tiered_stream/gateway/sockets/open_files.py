"""Limit of open files of the process, and the number of client connections that it allows."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

_PER_CONNECTION = 2  # the connection to the client and the connection to the broker
_OTHERS = 256  # the gateway's own connections, threads, ports and files


def connections_allowed(wanted: int, ports: int) -> int:
    """Raise the soft limit of open files (`ulimit -n`) as needed; return how many client connections are allowed.

    The result is `wanted`, or a smaller number (at least 1) if the hard limit is too low for `wanted` connections and
    `ports` listening ports.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _PER_CONNECTION * wanted + ports + _OTHERS
    if resource.RLIM_INFINITY in (soft, hard) and soft in (resource.RLIM_INFINITY, hard):
        return wanted
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit == needed or soft >= needed:
        return wanted
    allowed = max(1, (limit - ports - _OTHERS) // _PER_CONNECTION)
    log.warning(
        "gateway.max.connections = %d needs %d open files, and this process may have %d (ulimit -Hn): "
        "at most %d connections are taken",
        wanted, needed, limit, allowed,
    )  # fmt: skip
    return allowed
