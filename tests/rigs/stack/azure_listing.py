"""Handler in front of Azurite for listings with the parameter `startFrom`, which Azurite ignores and deltalake uses."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from tests.rigs.stack.http_front import FrontHandler, listed_from


class AzureListingHandler(FrontHandler):
    """Handler that starts listings where they are to start. Signatures stay valid, because they leave out the port."""

    def handle_request(self, body: bytes) -> None:
        response, content = self.ask(self.command, self.path, body, self.passed_headers())
        first = parse_qs(urlsplit(self.path).query).get("startFrom")
        if first and response.status == 200:
            content = listed_from(content, "Blob", "Name", first[0], inclusive=True)
        self.respond(response.status, dict(response.getheaders()), content)
