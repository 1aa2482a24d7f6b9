"""Kafka's text form of a UUID: URL-safe base64 of its 16 bytes, without padding (Kafka: `common.Uuid`)."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def uuid_to_text(value: UUID) -> str:
    """The 22 characters that name topics and segments in object keys and manifests."""
    return urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Inverse of `uuid_to_text`.

    Raises:
        ValueError: `text` is not 22 characters of the URL-safe base64 alphabet.
    """
    if not _TEXT.fullmatch(text):
        raise ValueError(f"not a Kafka UUID: {text[:40]!r}; it has 22 characters of A-Z, a-z, 0-9, '-' and '_'")
    return UUID(bytes=urlsafe_b64decode(text + "=="))
