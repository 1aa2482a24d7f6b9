"""Ingest job: a program that lands topics in Delta tables by one or more streaming queries.

Files that other packages import:

- `ingest_run`: run of an ingest job: it starts the job's queries, prints their progress, and waits for their ends

Files of this package alone:

- `ingest_plan`: plan of an ingest job: the queries that its settings describe
- `stop_request`: request to stop an ingest job, by SIGTERM or Ctrl-C
"""
