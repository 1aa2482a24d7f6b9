"""Replay: copy the records of topics between two times to a target, by a stored plan, so that a replay can be resumed.

The package has the same name as its function `run_replay.replay`. A call of the package calls this function. The
command line imports `run_replay`, `dry_run`, `progress_display`, `table_and_folder_targets` and `times`. Exports import
`times`.

- `run_replay`: function `replay`, and the run of a planned replay.
- `replay_plan`: plan of a replay.
- `replay_checkpoint`: the replay's files in its checkpoint.
- `times_to_offsets`: new plan, whose times become offsets.
- `times`: parser of times.
- `limit_to_landed`: limit to offsets that the ingest query has landed.
- `dry_run`: estimate of the cost, with or without Spark.
- `progress_display`: bar or lines of progress.
- `target`: base class of targets.
- `table_and_folder_targets`: Delta table and Parquet files as targets.
- `topic_target`: Kafka topic as the target, by a Spark source.
- `topic_settings`: settings for producing.
- `topic_checks`: checks of the target topic.
- `produce`: producer of one partition's records.
- `target_positions`: positions of a replay in the target's cluster.
- `librdkafka_errors`: retries and errors of librdkafka.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tiered_stream.extras import naming_extras


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with naming_extras("tiered_stream.replay"):
            from tiered_stream.replay.run_replay import replay

        return replay(*arguments, **named)


sys.modules[__name__].__class__ = _CallablePackage
