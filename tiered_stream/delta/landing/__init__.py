"""Queries that land topics in tables, in the direct lane or in the Spark lane.

In the direct lane, tasks write the table's files themselves. In the Spark lane, Spark's Delta sink writes them.

Files that other packages import:

- `data_files_readers`: Spark readers of the direct lane: they plan like the `tiered_stream` source
- `inferred_schema`: inference of JSON schemas (`ingest.value.schema=infer` and `ingest.key.schema=infer`)
- `land`: streaming queries that land topics in Delta tables (`land`), in the direct lane or in the Spark lane
- `landing_by_topic`: queries of the direct lane for many tables; planning opens none of the tables
- `spark_rows`: conversion of Spark's records to rows and dead letters

Files of this package alone:

- `data_files_source`: Spark data source of the direct lane
- `spark_lane`: queries of the Spark lane
"""
