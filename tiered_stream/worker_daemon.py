"""Python workers that start with all imports done: `spark.python.daemon.module=tiered_stream.worker_daemon`.

Spark forks the Python workers of an executor from one daemon that has imported next to nothing, and ends a worker that
was idle for a minute. So each imports pyarrow, numba, boto3 and this package anew, and loads the compiled kernels. This
daemon does it once for all of them. Workers of other queries are forked from it, too, and find the modules if they want
them.

Spark's own daemon imports nothing since a fork takes over no threads. Should what is imported here start any, Spark's
own daemon takes this one's place.
"""

from __future__ import annotations

import logging
import os
import sys

from tiered_stream.forks import may_fork, settle_for_forks
from tiered_stream.process import share_heap_with_arrow

log = logging.getLogger(__name__)

SPARKS_OWN = "pyspark.daemon"


def import_ahead() -> None:
    """Import what tasks of any lane need, and load the kernels."""
    import pyspark.worker  # noqa: F401

    from tiered_stream.delta import data_files_readers, task_writer  # noqa: F401
    from tiered_stream.records.decoder import compile_kernels
    from tiered_stream.storage.s3_store import load_models

    load_models()
    compile_kernels()


def main() -> None:
    """Import, and serve as Spark's own daemon does; the arguments are its own."""
    share_heap_with_arrow()  # before a library's thread gets one of its own, which each worker would go on with
    try:
        import_ahead()
        why_not = None if may_fork() else "what was imported has started threads"
    except Exception as error:  # noqa: BLE001 - workers do without, and tell what is wrong better
        why_not = str(error)
    if why_not is not None:
        log.warning("workers import for themselves: %s", why_not)
        os.execv(sys.executable, [sys.executable, "-m", SPARKS_OWN, *sys.argv[1:]])
    settle_for_forks()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
