"""Landing of Kafka topics in Delta tables, exactly once.

Spark's tasks write a table's files themselves (direct lane), or rows go through Spark's Delta sink (Spark lane).

Packages:

- `settings`: declaration, parsing and checks of the settings `ingest.*`
- `schema`: columns of tables, formats of their rows, and the table of each topic
- `requirements`: requirements of tables and sessions for writers, and ways by which tasks reach a table's store
- `write`: data files that tasks write in the direct lane, and their uploads
- `catalog`: addresses of tables, the session's Java errors, and its platform
- `checkpoint`: the query's checkpoint
- `commit`: commits to tables, by delta-spark or deltalake
- `landing`: queries that land topics
- `redrive`: redrives, which decode dead letters again and move them into the tables of their topics
"""
