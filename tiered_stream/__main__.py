"""Entry point of `python -m tiered_stream`, which runs the command line `tiered-stream`."""

from tiered_stream.cli import app

app()
