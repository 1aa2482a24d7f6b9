"""`python -m tests.contract` writes the tables of the compatibility page anew."""

from __future__ import annotations

from tests.contract.proofs import PAGE, TABLES
from tests.docs.docs_tables import with_table


def main() -> None:
    text = PAGE.read_text("utf-8")
    for name, table in TABLES.items():
        text = with_table(text, name, table())
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
