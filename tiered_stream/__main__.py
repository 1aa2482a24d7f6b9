"""Run the command line `tiered-stream` as `python -m tiered_stream`."""

from tiered_stream.cli import app

app()
