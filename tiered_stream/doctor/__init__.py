"""Checks of `tiered-stream doctor`: find what prevents a job from running, and say how to fix it.

Other packages import `examine`, `finding.Finding` and `spark_conf`.

- `examine`: run all checks in order.
- `finding`: findings, and the runner of the checks.
- `environment`: settings, Python, Java, compiled kernels, managed platform.
- `effective_settings`: list of the settings in effect, without secrets.
- `spark_conf`: Spark's configuration, which is read without starting Spark.
- `cluster_checks`: brokers or archive, topics, locator, offsets.
- `broker_fixes`: advice on refused logins and requests.
- `tier_checks`: tiered storage and a sample of its segments.
- `table_checks`: tables, their stores, checkpoints.
- `clock`: this machine's clock against the storage's.
- `s3_bucket`: requests to a bucket in S3.
- `cloud_bucket`: requests by this package's stores to tables' folders, and to segments outside S3.
"""
