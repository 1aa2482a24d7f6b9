"""Jobs with hostile names: topics, tables, columns, properties and replays, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

EVIL = "EVIL"
"""Stands in hostile names for what injected SQL would create: a folder, a column, a property."""
FORGED = "FORGED"
"""Begins the line that a hostile name with a line end would forge."""
LONGEST = 220
"""Length of a topic's name with which the names of its folders, in the bucket and of its table, fit into 255 bytes."""
TOPICS = (
    "orders", "Orders", "ORDERS", "orders--raw", "orders.raw", "orders-raw", "orders_raw", "--", "-", "...", "a..b",
    "_", "_delta_log", "_orders", ".hidden", "__HIVE_DEFAULT_PARTITION__", "x" * LONGEST, "X" * LONGEST, "select",
    "table", "default", "delta", "spark_catalog.guard.untouched", "guard.untouched", "1", "1e5", "null", "old_orders",
    "topic", "_checkpoints",
)  # fmt: skip
"""Names that Kafka allows."""
ILLEGAL_TOPICS = (
    "..", ".", "../x", "/etc/x", "a/b", "a b", "a`b", "x;DROP TABLE guard.untouched", f"a\n{FORGED} line", "\x1b[2J",
    "x" * 250, "оrders", "\u202eorders", "orders\u200b", "a%2Fb", "{topic}", "'", "*",
)  # fmt: skip
NAMES = (
    "plain", "Plain", "a b", "a`b", "``", "a``b`", "--", "x -- y", "x; DROP TABLE guard.untouched",
    f"x (evil INT) USING delta LOCATION '{EVIL}' --", f"x` (evil INT) USING delta LOCATION '{EVIL}' --",
    f"x` INT, `{EVIL}", f"x', '{EVIL}' = 'y", f"x\\', '{EVIL}' = 'y", "'", "\\", "\\'", '"', "%2F", "a%2e%2e%2fb",
    "%", "..",
    "...", ".", "a.b", "spark_catalog.guard.untouched", "_delta_log", "__HIVE_DEFAULT_PARTITION__", "day=1", "é",
    "оrders",
    "\u202ex", "x\u200b", f"x\n{FORGED} line", f"x\r{FORGED} line", "\x1b[31mx", "\0x", "\tx", "{topic}", "{x}", "$1",
    "${env:HOME}", "${spark.app.name}",
    "x" * 249, "x" * 260, "select", "*", "?", "[a]", "#", ":", "a,b", "a=b", "(a)", "\u2028", "İ", "ß", "id", "of",
)  # fmt: skip
"""Names of tables, columns, properties and replays. None has a slash, which would make a path of it."""


@dataclass(frozen=True)
class Job:
    """An ingest job and what follows it.

    `table` is the last part of the tables' names, and has `{topic}` if each topic has a table. `by_path`: tables are in
    folders; otherwise in the catalog. `raw`: the part is given to the product without quotes. `id_column`, `of_column`
    and `topic_column` are columns with a number, the topic by the value, and the topic by Kafka. `dead` is the name of
    the table for dead letters, in a folder or in the catalog as the tables are. `registry`: a registry has the schema.
    """

    topics: tuple[str, ...]
    table: str
    by_path: bool
    raw: bool
    a_query_each: bool
    id_column: str
    of_column: str
    topic_column: str
    dead: str
    registry: bool
    mapped: bool
    properties: dict[str, str]
    replayed: str
    replay_name: str | None
    lane: str

    @property
    def each(self) -> bool:
        """Whether each topic has a table of its own."""
        return "{topic}" in self.table

    def table_of(self, topic: str) -> str:
        """Return the part of the topic's table, as the catalog or the file system has it."""
        part = self.table.replace("{topic}", topic)
        return part if self.by_path else part.lower()


def draw(random: Random) -> Job:
    """Return a job, most of whose names are harmless, so that it gets far."""

    def name(usual: str, chance: float) -> str:
        return random.choice(NAMES) if random.random() < chance else usual

    by_path = random.random() < 0.5
    legal = TOPICS if by_path else [each for each in TOPICS if each.replace("_", "").isalnum() or random.random() < 0.2]
    topics = random.sample(legal, 2)
    if random.random() < 0.3:
        topics = random.choice((["orders", "Orders"], ["orders", "orders--raw"], ["orders", "old_orders"]))
    if random.random() < 0.1:
        topics[1] = random.choice(ILLEGAL_TOPICS)
    rare = 1.0 if by_path else 0.1
    template = random.choice(
        ("{topic}", "{topic}", "old_{topic}", name("{topic}", rare), name("{topic} raw", 0.5) if by_path else "all")
    )
    a_query_each = random.random() < 0.4 and "{topic}" in template
    # One query for many tables cannot map columns, and Delta then refuses many names of columns.
    mapped = random.random() < 0.8 and (a_query_each or "{topic}" not in template)
    rare_columns = 0.5 if mapped else 0.15
    id_column, of_column, topic_column = (name(usual, rare_columns) for usual in ("id", "of", "topic"))
    return Job(
        tuple(topics), template, by_path, random.random() < 0.3, a_query_each, id_column, of_column, topic_column,
        name("dead", 0.3 * rare), random.random() < 0.2, mapped,
        {name("owner.team", 0.5): name("7", 0.5)} if random.random() < 0.4 else {}, name("replayed", 0.5 * rare),
        random.choice((None, None, None, random.choice(NAMES))),
        random.choice(("auto", "spark" if mapped else "direct")),
    )  # fmt: skip
