"""Hourly ingest by Airflow 3, for `ingest.trigger=availableNow`.

`max_active_runs=1` keeps a second run away from the checkpoint. If a task is stopped, Airflow sends SIGTERM to its
processes, and the job finishes its micro-batch.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

INGEST = (
    "spark-submit --properties-file /etc/tiered-stream/spark.conf jobs/ingest_to_delta.py "
    "--settings /etc/tiered-stream/orders.properties"
)

with DAG(
    dag_id="ingest_orders",
    schedule="7 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="ingest",
        bash_command=INGEST,
        cwd="/opt/tiered_stream",
        retries=2,
        retry_delay=timedelta(minutes=5),
    )
