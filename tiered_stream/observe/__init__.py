"""Metrics, log lines and reports of running queries, and the output of commands. All other packages may import them.

- `read_metrics`: counters of the cost of reading, which tasks send to the driver.
- `metrics_receiver`: receiver of the counters on the driver.
- `driver_log`: log lines of the driver about the cost of each micro-batch, and the lag in them.
- `landed_rows`: rows and dead letters that micro-batches have committed.
- `progress`: report on a finished micro-batch, as a line or as JSON.
- `prometheus_metrics`: sums of a query's micro-batches as Prometheus metrics.
- `prometheus_endpoint`: HTTP server of `/metrics` and `/health`.
- `open_telemetry`: sender of the same metrics by OTLP.
- `standard_output`: console of commands.
"""
