"""All targets of the job, by what they parse."""

from tests.rigs.fuzz.targets import (
    aiven,
    broker_answers,
    fork_requests,
    gateway_frames,
    json_values,
    metadata_records,
    names,
    old_message_sets,
    other_texts,
    record_batches,
    relayed_streams,
    reports,
    row_texts,
    s3_answers,
    schema_names,
    segment_files,
    settings,
    signed_locations,
    typed_values,
)

TARGETS = (
    *record_batches.TARGETS, *old_message_sets.TARGETS, *segment_files.TARGETS, *aiven.TARGETS,
    *metadata_records.TARGETS, *gateway_frames.TARGETS, *broker_answers.TARGETS, *settings.TARGETS,
    *other_texts.TARGETS, *signed_locations.TARGETS, *relayed_streams.TARGETS,
    *fork_requests.TARGETS, *s3_answers.TARGETS, *typed_values.TARGETS, *json_values.TARGETS, *row_texts.TARGETS,
    *schema_names.TARGETS, *reports.TARGETS, *names.TARGETS,
)  # fmt: skip
