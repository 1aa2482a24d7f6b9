"""Credentials that are known by sight, and the search for them in whatever was written."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

SIGNED = re.compile(
    rb"X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)=[^&\s]{8}|Signature=[0-9a-f]{64}|[?&]sig=[^&\s]{8}"
)
"""What a signed URL or request has, whoever signed it."""


class Canaries:
    """Secrets by what they are the secret of."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def of(self, what: str) -> str:
        """A secret, the same each time."""
        return self._texts.setdefault(what, f"canary{uuid4().hex}")

    def pem(self, what: str, text: str) -> str:
        """A private key in PEM, which is made elsewhere: a line of it is the canary."""
        self._texts[what] = text.strip().splitlines()[2]
        return text

    def given_out(self, what: str, texts: Iterable[str]) -> None:
        """Secrets that somebody else has made."""
        self._texts.update({f"{what} {number}": text for number, text in enumerate(texts)})

    def found_in(self, data: bytes) -> set[str]:
        """Whose secrets are in it, as they are or in an encoding, and signatures."""
        signed = {f"signature: {match[0][:30]!r}" for match in SIGNED.finditer(data)}
        return signed | {what for what, text in self._texts.items() for form in _forms(text) if form.encode() in data}

    def found_below(self, folder: Path) -> dict[str, set[str]]:
        """The same by file, of all files in a folder, the names of files included."""
        found = {
            str(path.relative_to(folder)): self.found_in(str(path).encode() + b"\n" + path.read_bytes())
            for path in folder.rglob("*")
            if path.is_file()
        }
        return {name: what for name, what in found.items() if what}


def _forms(text: str) -> Iterator[str]:
    yield text
    yield quote(text, safe="")
    yield text.encode().hex()
    # As base64 has it, wherever in a group of three bytes it begins; its ends depend on its neighbours.
    for before in range(3):
        yield base64.b64encode(b"\0" * before + text.encode()).decode()[4:-4]
