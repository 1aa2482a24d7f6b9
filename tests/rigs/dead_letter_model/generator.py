"""Draw random histories. The same name gives the same history."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.rigs.dead_letter_model.history import (
    COLUMNS,
    AddCheck,
    AllowNull,
    Break,
    Die,
    DropChecks,
    History,
    Interruption,
    Land,
    Layout,
    Moment,
    Place,
    Produce,
    Redrive,
    RedriveMeanwhile,
    Repair,
    Replay,
    ReplayOn,
    Setup,
    Step,
)
from tests.rigs.dead_letter_model.shapes import Shape

_CHECKS = ("a < 50", "a < 80", "b >= 20", "b BETWEEN 0 AND 60", "c IS NOT NULL", "a > 10 OR b > 10", "id >= 0")
_FOR_SPARK_ALONE = ("a % 2 = 0", "coalesce(b, 0) < 90")
"""Checks that only Spark can evaluate."""


def draw_history(name: str, *, with_spark: bool = True) -> History:
    """Draw the history of this name, with steps that need Spark or without them."""
    return _Drawer(name, with_spark=with_spark).history()


class _Drawer:
    def __init__(self, name: str, *, with_spark: bool) -> None:
        self._with_spark = with_spark
        self._name = name
        self._draw = Random(name)
        self._rare = Random(f"{name} rare")
        """Draws that came later, so that a name gives the same steps as before."""
        self._new = 0
        """Records that each partition got since the last landing."""
        self._setup = self._draw_setup()
        self._parks = self._setup.layout is not Layout.ONE_TABLE and self._chance(0.5)
        if self._setup.not_null is not None and not (self._with_spark or self._parks):
            # Without Spark, nothing takes these rules away at the end, and a query that parks lands no such rows.
            not_null = tuple(each for each in COLUMNS if self._rare.random() < 0.2)
            self._setup = replace(self._setup, not_null=not_null, text_limit=self._rare.choice((None, 1)))

    def history(self) -> History:
        steps: list[Step] = [self._produce(), self._land()]
        for _ in range(self._draw.randint(1, 3)):
            steps += self._part()
        return History(
            self._name,
            self._setup,
            tuple(steps),
            self._schema(),
            redrives_at_end=self._with_spark and self._chance(0.3),
        )

    @property
    def _weights(self) -> tuple[int, ...]:
        return (12, 2, 3, 1) if self._with_spark else (12, 0, 0, 1)

    def _part(self) -> list[Step]:
        """Draw a few steps that make sense together."""
        match self._draw.choices(("land", "redrive", "replay", "change"), self._weights)[0]:
            case "land":
                more = [self._produce()] if self._chance(0.5) else []
                again = [self._land()] if self._chance(0.6) else []
                return [*more, self._land(), *self._changes(0.5), *again]
            case "redrive":
                return [*self._changes(0.5), Redrive(self._schema(), self._interruptions(_REDRIVE))]
            case "replay":
                first = self._draw.randint(0, 6)
                schema, exact = self._schema(), self._chance(0.3)
                replay = Replay(
                    self._table(), first, first + self._draw.randint(1, 10), exact, schema, self._interruptions(_REPLAY)
                )
                between: list[Step] = [self._land()] if self._chance(0.2) else []
                between += [Redrive(self._schema())] if self._chance(0.2) else []
                return [replay, *between, ReplayOn(self._schema(), self._interruptions(_REPLAY, 0.3))]
            case _:
                return self._changes(1)

    def _land(self) -> Land:
        direct_only = self._setup.layout is not Layout.ONE_TABLE or self._parks
        lane = "auto" if direct_only else self._draw.choice(("auto", "auto", "direct", "direct", "spark"))
        commit = self._draw.choice(("auto", "spark", "deltalake"))
        batches = self._draw.randint(1, 3)
        new, self._new = self._new, 0
        limit = max(2, -(-new * self._setup.partitions * len(self._setup.topics) // batches))
        return Land(self._schema(), lane, commit, limit, self._parks, self._interruptions(_LANDING))

    def _interruptions(self, moments: tuple[tuple[Place, int], ...], chance: float = 0.75) -> tuple[Interruption, ...]:
        found = []
        if self._chance(chance):
            kind = self._draw.choice(("die", "die", "change", "change", "change and die", "redrive"))
            place, most = self._draw.choice(moments)
            after = self._chance(0.8 if place is Place.LETTERS else 0.3)  # mostly between a batch's two tables
            moment = Moment(place, 1 + int(self._draw.random() ** 2 * most), after)
            if kind == "die":
                found.append(Interruption(moment, Die()))
            elif kind == "redrive":
                if moments is _LANDING and self._with_spark:
                    found.append(Interruption(moment, RedriveMeanwhile(self._schema())))
            else:
                found.append(Interruption(moment, self._change()))
            if kind == "change and die":
                place, most = self._draw.choice(moments)
                found.append(Interruption(Moment(place, self._draw.randint(1, most), self._chance(0.5)), Die()))
        return tuple(found)

    def _changes(self, chance: float) -> list[Step]:
        return [self._change()] if self._chance(chance) else []

    def _change(self) -> AddCheck | DropChecks | AllowNull | Break | Repair:
        table = self._table()
        match self._draw.choices(("check", "drop", "null", "break", "repair"), (5, 3, 2, 2, 1))[0]:
            case "check":
                return AddCheck(table, self._draw.choice(_CHECKS * 3 + _FOR_SPARK_ALONE))
            case "drop":
                return DropChecks(table)
            case "null":
                return AllowNull(table)
            case "break":
                return Break(self._draw.choice((table, table, -1)), self._draw.choice(("away", "check")))
        return Repair(self._draw.choice((table, table, -1)))

    def _table(self) -> int:
        return self._draw.randrange(len(self._setup.tables))

    def _produce(self) -> Produce:
        records = self._draw.randint(2, 6)
        self._new += records
        return Produce(records, self._draw.randrange(1_000_000), spoiled=self._rare.random() < 0.3)

    def _schema(self) -> tuple[str, ...]:
        """Draw a schema. It has all columns if the query makes its tables, so that the tables have all columns, too."""
        if self._setup.not_null is None or self._chance(0.4):
            return COLUMNS
        return tuple(each for each in COLUMNS if self._chance(0.7) or each in (self._setup.not_null or ()))

    def _draw_setup(self) -> Setup:
        layout = self._draw.choice(tuple(Layout))
        topics = self._draw.randint(1, 2) if layout is Layout.ONE_TABLE else self._draw.randint(2, 3)
        not_null = None
        if self._chance(0.6):
            # Only Spark can take NOT NULL away.
            not_null = tuple(each for each in COLUMNS if self._chance(0.2) and self._with_spark)
        return Setup(
            layout,
            ("orders", "old-orders", "orders.eu")[:topics],
            self._draw.randint(1, 2),
            not_null,
            by_pattern=self._chance(0.3),
            day_column=self._chance(0.2),
            shape=self._rare.choice((Shape.DECODED, *Shape)),
        )

    def _chance(self, probability: float) -> bool:
        return self._draw.random() < probability


_LANDING = ((Place.LETTERS, 3), (Place.LETTERS, 2), (Place.ROWS, 4), (Place.ROWS, 3), (Place.NOTE, 3), (Place.BATCH, 4))
"""Places to interrupt, each with the largest number of a write."""
_REDRIVE = ((Place.LETTERS, 3), (Place.ROWS, 2))
_REPLAY = ((Place.LETTERS, 2), (Place.ROWS, 1), (Place.NOTE, 2), (Place.BATCH, 1))
