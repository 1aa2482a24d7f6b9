"""`python -m tiered_stream` is `tiered-stream`."""

from tiered_stream.cli import app

app()
