"""AWS's Security Token Service, as much of it as hands out credentials of roles."""

from __future__ import annotations

import datetime
import os
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from tests.local_http import Answer, LocalHttp, respond

_GRANTED = """<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{ends}</Expiration></Credentials></{action}Result></{action}Response>"""
_REFUSED = (
    "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{key} may not</Message></Error>"
    "<RequestId>1</RequestId></ErrorResponse>"
)


class StsServer(LocalHttp):
    """`asked` holds the forms that came, with the authorization; `answers`: each goes instead of credentials.

    Args:
        secret: what the secret key of each role begins with; a number follows, and so for tokens.
    """

    def __init__(self, secret: str = "hunter2", life_seconds: float = 3600) -> None:
        self.secret, self.life_seconds = secret, life_seconds
        self.asked: list[dict[str, str]] = []
        self.answers: list[Answer] = []
        super().__init__(type("Handler", (_Handler,), {"sts": self}))

    def answer(self, form: dict[str, str]) -> Answer:
        """Credentials, or what is to be answered instead."""
        self.asked.append(form)
        if self.answers:
            return self.answers.pop(0)
        number, action = len(self.asked), form["Action"]
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.life_seconds)
        granted = _GRANTED.format(
            action=action, key=f"KEY{number}", secret=f"{self.secret}secret{number}",
            token=f"{self.secret}token{number}", ends=ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )  # fmt: skip
        return Answer(200, granted.encode())


def refused(status: int, code: str, key: str = "hunter2") -> Answer:
    """An answer that names a key that nobody is to see."""
    return Answer(status, _REFUSED.format(code=code, key=key).encode())


class _Handler(BaseHTTPRequestHandler):
    sts: StsServer

    def do_POST(self) -> None:
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        respond(self, self.sts.answer({**form, "authorization": self.headers.get("Authorization", "")}))


def unknown_to_aws(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take away what this machine has of AWS; `credentials` and `config` in the folder are its settings now."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
