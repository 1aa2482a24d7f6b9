from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.segment import segment
from tiered_stream.data_limits import Limit
from tiered_stream.errors import CorruptDataError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.fetcher import IndexType
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher
from tiered_stream.storage.open_fetcher import open_fetcher

FOLDER = "orders-3-AAAAAAAAAAAAAAAAAAAAAQ"
NAME = "00000000000000000040-AAAAAAAAAAAAAAAAAAAAKg"


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """The folder of one segment, base offset 40, as LocalTieredStorage names it, without a transaction index."""
    (tmp_path / FOLDER).mkdir()
    for suffix in ("log", "index", "timeindex", "leader_epoch_checkpoint", "snapshot"):
        (tmp_path / FOLDER / f"{NAME}.{suffix}").write_bytes(f"the {suffix}".encode())
    return tmp_path


def test_the_logs_bytes_are_read_by_range_and_to_the_end(tier: Path) -> None:
    fetcher = open_fetcher(StorageOptions(uri=tier.as_uri()))
    assert fetcher.fetch_log_segment(segment(7, 40), 0) == b"the log"
    assert fetcher.fetch_log_segment(segment(7, 40), 4, 6) == b"lo"
    assert fetcher.fetch_log_segment(segment(7, 40), 4) == b"log"


def test_an_object_shorter_than_the_metadata_says_is_corrupt(tier: Path) -> None:
    with pytest.raises(CorruptDataError, match=rf"{NAME}\.log .*7 bytes"):
        open_fetcher(StorageOptions(uri=tier.as_uri())).fetch_log_segment(segment(8, 40), 0)


def test_all_indexes_come_but_those_that_were_not_uploaded(tier: Path) -> None:
    fetcher = open_fetcher(StorageOptions(uri=tier.as_uri()))
    assert fetcher.fetch_indexes(segment(7, 40), list(IndexType)) == {
        IndexType.OFFSET: b"the index",
        IndexType.TIMESTAMP: b"the timeindex",
        IndexType.LEADER_EPOCH: b"the leader_epoch_checkpoint",
        IndexType.PRODUCER_SNAPSHOT: b"the snapshot",
    }
    (tier / FOLDER / f"{NAME}.txnindex").write_bytes(b"the txnindex")
    assert fetcher.fetch_indexes(segment(7, 40), [IndexType.TRANSACTION]) == {IndexType.TRANSACTION: b"the txnindex"}


def test_a_transaction_index_said_to_be_empty_is_not_asked_for(tier: Path) -> None:
    (tier / FOLDER / f"{NAME}.txnindex").write_bytes(b"unexpected")
    fetcher = open_fetcher(StorageOptions(uri=tier.as_uri()))
    assert fetcher.fetch_indexes(segment(7, 40, transaction_index_empty=True), [IndexType.TRANSACTION]) == {}


def test_a_missing_offset_index_is_an_error(tier: Path) -> None:
    (tier / FOLDER / f"{NAME}.index").unlink()
    with pytest.raises(StorageObjectNotFoundError, match=rf"{NAME}\.index "):
        open_fetcher(StorageOptions(uri=tier.as_uri())).fetch_indexes(segment(7, 40), [IndexType.OFFSET])


class MomentarilyEmptyStore(FileStore):
    """Its first answer about an object whose name ends in `suffix` is that there is none."""

    def __init__(self, root: Path, suffix: str) -> None:
        super().__init__(root)
        self._suffix = suffix
        self._asked = False

    def get(self, key: str, wanted: ByteRange | Limit) -> bytes:
        if key.endswith(self._suffix) and not self._asked:
            self._asked = True
            raise StorageObjectNotFoundError(f"{key} does not exist")
        return super().get(key, wanted)


@pytest.mark.parametrize(
    ("index_type", "suffix"), [(IndexType.TRANSACTION, "txnindex"), (IndexType.PRODUCER_SNAPSHOT, "snapshot")]
)
def test_an_index_that_is_not_found_for_a_moment_is_not_taken_for_absent(
    tier: Path, index_type: IndexType, suffix: str
) -> None:
    (tier / FOLDER / f"{NAME}.{suffix}").write_bytes(b"its entries")
    fetcher = LocalLayoutFetcher(MomentarilyEmptyStore(tier, f".{suffix}"))
    assert fetcher.fetch_indexes(segment(7, 40), [index_type]) == {index_type: b"its entries"}


def test_of_a_segment_that_is_being_deleted_no_index_is_absent(tier: Path) -> None:
    (tier / FOLDER / f"{NAME}.log").unlink()
    with pytest.raises(StorageObjectNotFoundError, match=rf"{NAME}\.log "):
        open_fetcher(StorageOptions(uri=tier.as_uri())).fetch_indexes(segment(7, 40), [IndexType.TRANSACTION])
