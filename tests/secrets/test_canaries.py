from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.secrets.canaries import Canaries


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_a_secret_is_found_in_any_form(tmp_path: Path, before: str) -> None:
    canaries = Canaries()
    secret = canaries.of("password")
    for form in (
        secret,
        quote(f"{secret}/"),
        base64.b64encode(f"{before}{secret}:x".encode()).decode(),
        secret.encode().hex(),
    ):
        (tmp_path / "log").write_text(f"some text {form} and more")
        assert canaries.found_below(tmp_path) == {"log": {"password"}}


def test_a_signature_is_found_whoever_made_it() -> None:
    assert Canaries().found_in(b"GET /b/k?X-Amz-Signature=0123456789abcdef&x")
    assert Canaries().found_in(b"AWS4-HMAC-SHA256 Credential=a, Signature=" + b"0f" * 32)
    assert not Canaries().found_in(b"https://host/b/k: status 403")
