r"""Ingest Kafka topics into Delta tables; tiered segments are read straight from their storage.

    spark-submit --properties-file spark.conf jobs/ingest_to_delta.py --settings orders.properties

Settings come from the file, and the command line overrides them. `ingest.*` settings define where and how the rows
land. All other settings are options of `format("tiered_stream")`.

With `{topic}` in `ingest.table`, each topic has its own table, written by one query of the direct lane. With `{topic}`
in `ingest.checkpointLocation` too, each topic of `subscribe` has its own query, in either lane. If a query fails, the
other queries continue.

The exit status is 0 if all rows are landed, 1 if a query failed, and 2 if the settings are wrong and no query was
started. It is 143 after SIGTERM and 130 after Ctrl-C.
"""

from __future__ import annotations

from tiered_stream.cli.command_line import command_app
from tiered_stream.cli.ingest_command import INGEST_EXIT_CODES, ingest

if __name__ == "__main__":
    app = command_app()
    app.command(epilog=INGEST_EXIT_CODES)(ingest)
    app()
