"""Reader of splits to Arrow batches.

Files that other packages import:

- `split_reader`: records of one split, from the storage or from the broker
- `task_storage`: bytes of all splits of a task, with one read-ahead
- `scanner`: records of topics without Spark, by threads (`scan`, `follow`)
"""
