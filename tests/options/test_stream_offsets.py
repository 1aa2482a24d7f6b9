"""Offsets with notes, as they are in Spark's offset log."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import TopicPartition
from tiered_stream.options.offset_json import KnownEnd, LastOffsets, Notes, StreamOffsets, notes_of, offsets_from_dict

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOTES = [
    Notes(),
    Notes(initial=True),
    Notes(start={T0: 5, T1: 0}),
    Notes(start={}),
    Notes(end=KnownEnd("-3600000", 1_700_000_000_000)),
    Notes(start={T0: 1}, end=KnownEnd('{"t":{"0":7}}', None, {T0: 3})),
    Notes(start={T0: 1}, topic_ids={"t": UUID(int=7), "u": UUID(int=1)}),
]


@pytest.mark.parametrize("notes", NOTES)
def test_notes_go_through_the_offset_log(notes: Notes) -> None:
    form = LastOffsets().to_dict(StreamOffsets({T0: 9}, notes))
    logged = json.loads(json.dumps(form))
    read = LastOffsets().from_dict(logged)
    assert (read, notes_of(read)) == ({T0: 9}, notes)
    assert LastOffsets().to_dict(read) == logged


@pytest.mark.parametrize("notes", NOTES)
def test_a_reader_that_knows_no_notes_reads_the_offsets(notes: Notes) -> None:
    form = LastOffsets().to_dict(StreamOffsets({T0: 9}, notes))
    assert offsets_from_dict(form) == {T0: 9}
    kafka_source = {(topic, int(part)): at for topic, parts in form.items() for part, at in parts.items()}
    assert kafka_source == {("t", 0): 9}, "as in Spark's JsonUtils.partitionOffsets"


def test_the_same_offsets_with_other_notes_have_another_form() -> None:
    last = LastOffsets()
    assert last.to_dict(StreamOffsets({T0: 9}, Notes(initial=True))) != last.to_dict({T0: 9}) == {"t": {"0": 9}}


@pytest.mark.parametrize(
    "note",
    [
        "startingOffsets=",
        "startingOffsets=[]",
        'startingOffsets={"t":{"0":-1}}',
        "ending={}",
        "ending=3",
        'ending={"position":"p","time":"x","offsets":{}}',
        "topicIds=[]",
        'topicIds={"t":"x"}',
        'topicIds={"t":7}',
    ],
)
def test_a_damaged_note_is_an_error(note: str) -> None:
    with pytest.raises(ConfigurationError, match="note that cannot be read"):
        LastOffsets().from_dict({"t": {"0": 9}, note: {}})
