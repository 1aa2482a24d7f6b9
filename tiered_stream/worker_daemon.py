"""Daemon process from which Spark forks its Python workers, with all modules that the workers need imported.

The setting `spark.python.daemon.module=tiered_stream.worker_daemon` selects this daemon. Spark forks all Python workers
of an executor from one daemon, and ends a worker that was idle for a minute. Spark's own daemon has imported almost
nothing, so each new worker imports pyarrow, numba, boto3 and this package again, and loads the compiled kernels. This
daemon imports the modules and loads the kernels once for all workers, including workers of other queries.

A fork does not inherit threads. If an import here starts a thread, Spark's own daemon replaces this daemon.
"""

from __future__ import annotations

import logging
import os
import sys

from tiered_stream.process.heap_and_gc import share_heap_with_arrow
from tiered_stream.pythons.forks import may_fork, settle_for_forks

log = logging.getLogger(__name__)

SPARK_DAEMON = "pyspark.daemon"


def import_ahead() -> None:
    """Import the modules that tasks of both lanes need, and load the compiled kernels."""
    import pyspark.worker  # noqa: F401

    from tiered_stream.delta.landing import data_files_readers  # noqa: F401
    from tiered_stream.delta.write import task_writer  # noqa: F401
    from tiered_stream.records.decoder import compile_kernels
    from tiered_stream.storage import s3  # noqa: F401
    from tiered_stream.storage.s3_client import load_models

    load_models()
    compile_kernels()


def main() -> None:
    """Call `import_ahead`, then run Spark's own daemon loop with the arguments that Spark has passed.

    If an import fails or starts a thread, Spark's own daemon replaces this process.
    """
    share_heap_with_arrow()  # first, before a library starts a thread: the thread's heap would stay in each worker
    try:
        import_ahead()
        reason = None if may_fork() else "an imported module has started threads"
    except Exception as error:  # noqa: BLE001 - workers then import them, and report a fault better
        reason = str(error)
    if reason is not None:
        log.warning("Spark's own daemon runs instead, so each worker imports its modules: %s", reason)
        os.execv(sys.executable, [sys.executable, "-m", SPARK_DAEMON, *sys.argv[1:]])
    settle_for_forks()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
