"""Orders of ten fields, as JSON and as Avro, and their schema as Spark and Avro say it."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable

from fastavro import schemaless_writer

DDL = (
    "id BIGINT, customer STRING, product STRING, city STRING, quantity INT, price DOUBLE, paid BOOLEAN, at BIGINT, "
    "status STRING, note STRING"
)
AVRO = json.dumps({
    "type": "record", "name": "Order", "fields": [
        {"name": name, "type": kind} for name, kind in (
            ("id", "long"), ("customer", "string"), ("product", "string"), ("city", "string"), ("quantity", "int"),
            ("price", "double"), ("paid", "boolean"), ("at", "long"), ("status", "string"), ("note", "string"),
        )
    ],
})  # fmt: skip


def documents(values: str, count: int) -> list[bytes]:
    """Orders of ten fields: `rows-json` in about 200 bytes each, `rows-avro` in half of that."""
    chosen = random.Random(0)
    orders = [
        {
            "id": chosen.randrange(10**9), "customer": f"customer-{chosen.randrange(10_000)}",
            "product": f"product {chosen.randrange(1000)}", "city": chosen.choice(["Lyon", "Porto", "Graz", "Turku"]),
            "quantity": chosen.randrange(100), "price": round(chosen.uniform(1, 500), 2),
            "paid": chosen.random() < 0.5, "at": 1_700_000_000_000 + chosen.randrange(10**9),
            "status": chosen.choice(["created", "paid", "sent", "returned"]),
            "note": "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz ", k=24)),
        }
        for _ in range(count)
    ]  # fmt: skip
    return [_ENCODE[values](each) for each in orders]


def _as_json(order: dict[str, object]) -> bytes:
    return json.dumps(order, separators=(",", ":")).encode()


def _as_avro(order: dict[str, object]) -> bytes:
    written = io.BytesIO()
    schemaless_writer(written, json.loads(AVRO), order)
    return written.getvalue()


_ENCODE: dict[str, Callable[[dict[str, object]], bytes]] = {"rows-json": _as_json, "rows-avro": _as_avro}
