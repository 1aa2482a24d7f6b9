from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.gateway.sockets.streams import CHUNK_BYTES, chunks


@given(st.lists(st.sampled_from([0, 1, 70, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 5])))
def test_an_answer_is_written_in_full_chunks_whatever_its_pieces_are(sizes: list[int]) -> None:
    pieces = [bytes([1 + at % 255]) * size for at, size in enumerate(sizes)]
    whole = b"".join(pieces)
    assert list(chunks(pieces)) == [whole[at : at + CHUNK_BYTES] for at in range(0, len(whole), CHUNK_BYTES)]
