"""Reading of splits, which are the offsets of one partition that one task reads, to Arrow batches.

Files that other packages import:

- `split_reader`: reader of one split's records, from the storage or from the broker
- `task_storage`: reader of the bytes of all splits of a task, which requests them ahead of their use
- `scanner`: reader of topics without Spark, in threads (`scan`, `follow`)
"""
