"""The database server of the rig; without Kafka and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.debezium import postgres
from tests.rigs.debezium.postgres import Postgres, why_no_postgres
from tests.rigs.debezium.tables import VARIANTS, tables
from tests.rigs.debezium.workload import Workload
from tests.rigs.stack.errors import StackError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if missing := why_no_postgres():
        pytest.skip(missing)
    with Postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.mark.stack
@pytest.mark.parametrize("seed", range(3))
def test_the_database_has_the_rows_of_the_model(database: Postgres, seed: int) -> None:
    some = tables(len(VARIANTS))
    workload = Workload(some, seed)
    database.execute("".join(f"DROP TABLE IF EXISTS {table.name};{table.create}" for table in some))
    session = database.session()
    for _ in range(300):
        session.execute(workload.transaction())
    session.close()
    for table in some:
        assert table.parse(database.execute(table.select)) == workload.rows[table.name]


@pytest.mark.stack
def test_a_statement_that_fails_is_reported_with_its_text(database: Postgres) -> None:
    session = database.session()
    with pytest.raises(StackError, match="at: SELECT wrong"):
        session.execute("SELECT wrong;")
    session.close()
    with pytest.raises(StackError, match='column "wrong" does not exist'):
        database.execute("SELECT wrong;")


@pytest.mark.stack
def test_nothing_is_left_of_a_server_that_stopped(tmp_path: Path) -> None:
    if missing := why_no_postgres():
        pytest.skip(missing)
    server = Postgres(tmp_path)
    server.start()
    server.stop()
    assert not server._data.exists()
    with pytest.raises(StackError, match="psql failed"):
        server.execute("SELECT 1;")


def test_a_missing_server_is_reported_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    assert (
        why_no_postgres() == "there is no PostgreSQL server (initdb, postgres, psql): install it (Debian: postgresql)"
    )
