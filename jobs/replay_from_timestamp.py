r"""Copy the records of topics between two times into a Delta table, each record once.

    spark-submit --properties-file spark.conf jobs/replay_from_timestamp.py \
        --settings orders.properties --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --replace

The command `tiered-stream replay` does the same without spark-submit. `--help` lists the arguments and the exit codes.
"""

from __future__ import annotations

from tiered_stream.cli.command_line import command_app
from tiered_stream.cli.replay_command import EXIT_CODES, replay

if __name__ == "__main__":
    app = command_app()
    app.command(epilog=EXIT_CODES)(replay)
    app()
