"""Replay: copy the records of topics between two times to a target, by a stored plan, so that a replay can be resumed.

The command line imports `run_replay`, `dry_run`, `progress_display`, `table_and_folder_targets` and `times`. The
package `export` imports `times` and `times_to_offsets`.

- `run_replay`: function `replay`, and the run of a planned replay.
- `replay_plan`: plan of a replay.
- `replay_checkpoint`: the replay's own files in its checkpoint folder.
- `times_to_offsets`: conversion of times to offsets, for a new plan.
- `times`: parser of times.
- `limit_to_landed`: limit to offsets that the ingest query has landed in the same table.
- `dry_run`: estimate of a replay's cost, with or without Spark.
- `progress_display`: bar or lines of progress.
- `target`: base class of targets.
- `table_and_folder_targets`: Delta table and Parquet files as targets.
- `topic_target`: Kafka topic as the target, to which the tasks of a Spark source produce.
- `topic_settings`: settings for producing.
- `topic_checks`: checks of the target topic.
- `produce`: producer of one partition's records.
- `target_positions`: positions of a replay in the target's cluster.
- `librdkafka_errors`: retries and errors of librdkafka.
"""
