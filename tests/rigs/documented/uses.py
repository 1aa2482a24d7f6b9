"""What each block of README and docs is used for, page by page in the order of the blocks.

A text between the uses is a command that the page's sentences ask for. `LogIn` fills in a file, as the README's step
"Settings" asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.rigs.documented.blocks import Elsewhere, Lines, LogIn, NotRun, Printed, Program, Records, Run, Settings, Use

README = "README.md"
_DEBEZIUM = "docs/guides/debezium-json.md"
AFTER: Mapping[str, str] = {"docs/guides/latest-state.md": _DEBEZIUM}
"""By page, another page whose files it needs."""

_JOB = "spark-submit --properties-file spark.conf jobs/ingest_to_delta.py --settings"
_ORDERS = "--properties-file spark.conf jobs/ingest_to_delta.py --settings orders.properties"
_LIMITED = (
    "cp orders.properties limited.properties && echo maxOffsetsPerTrigger=1000 >> limited.properties"
    f" && {_JOB} limited.properties --table s3a://lake/limited/orders --checkpoint s3a://lake/limited/checkpoint"
    " 2> spark.log"
)
_THROUGH_GATEWAY = (
    "tiered-stream gateway --config gateway.properties & gateway=$!"
    "; until curl --silent --fail http://127.0.0.1:19080/health; do sleep 0.5; done"
    "; tiered-stream cat --settings orders.properties --option kafka.bootstrap.servers=gateway.example.com:19092"
    " --option kafka.security.protocol=SASL_PLAINTEXT --option remote.log.locator=broker --count 3"
    " && kill $gateway && wait $gateway"
)
_NETWORK = "needs the internet: it clones a repository or installs from an index"
_DIST = "tests/dist/test_dist.py::test_workers_with_nothing_of_ours_read_and_land_by_both_lanes"
_YARN = "tests/yarn/test_jobs_on_yarn.py::test_the_job_lands_an_archive_by_the_packed_environment_alone"
_SECURED = "tests/yarn/test_secured_yarn.py::test_a_key_table_logs_in_at_brokers_and_name_node_wherever_the_driver_is"
_KERBEROS = "tests/kerberos/test_kerberos_logins.py::test_a_key_table_and_a_principal_log_in"
_HDFS = "tests/kerberos/test_secured_hdfs.py::test_a_golden_archive_is_read_by_the_pasted_login_of_the_plugin"
_SCAN = "tests/docs/test_without_spark.py"
_CHANGES = "tests/formats/rows/test_change_records.py"
_SUMS = "tests/jobs/test_landed_sums.py"
_LOG = "tests/observe/test_driver_log.py::test_tasks_that_are_repeated_add_no_rows_and_no_micro_batch"
_METRICS = "tests/observe/test_read_metrics.py::test_latencies_errors_and_fallbacks_are_told_when_there_were_any"
_LOGINS = "tests/test_logins.py::test_batch_and_stream_log_in_as_javas_clients_do"
_FUNCTION = "tests/broker/login/test_oauthbearer.py::test_a_function_of_the_users_hands_out_tokens"
_CONF = "tests/jobs/test_conf.py::test_table_checkpoint_and_tier_are_in_another_s3_service"
_REGISTRY = {"ingest.schema.registry.url": "https://registry.example.com"}
_TABLE_LINE = "ingest s3a://lake/bronze/orders: "

USES: Mapping[str, Sequence[Use | LogIn | str]] = {
    README: [
        Elsewhere("make demo", "tests/rigs/demo/__main__.py"),
        Elsewhere("git clone", "tests/dist/test_plain_install.py::test_topics_are_scanned"),
        Run("cp conf/spark-s3.conf spark.conf"),
        Settings("kafka.bootstrap.servers=broker1:9092", "orders.properties"),
        LogIn("orders.properties"),
        Run("tiered-stream doctor"),
        Printed(_TABLE_LINE),
        Program("records = "),
        "spark-submit --properties-file spark.conf examples/one_changed_word.py orders.properties s3a://lake/own",
    ],
    "docs/api.md": [Program("import tiered_stream", after="query.awaitTermination()")],
    "docs/guides/air-gapped.md": [NotRun("git clone", _NETWORK), NotRun("(cd wheels", "needs the wheels of above")],
    "docs/guides/archive.md": [
        Settings("subscribe=orders", "archive.properties"),
        Run("tiered-stream segments"),
    ],
    "docs/guides/backfill.md": [Run("tiered-stream replay"), Run("tiered-stream replay")],
    "docs/guides/cluster.md": [
        Elsewhere("make dist", _DIST),
        Elsewhere("export HADOOP_CONF_DIR", _YARN),
        Elsewhere("spark-submit", _YARN),
    ],
    _DEBEZIUM: [
        Elsewhere("# Connector or worker", "tests/rigs/debezium/connect.py"),
        Records('{"id": 1}'),
        Settings("subscribe=shop.public.orders", "orders-latest.properties", "orders.properties"),
        f"{_JOB} orders-latest.properties",
        Lines("subscribe=shop.public.orders"),
        Elsewhere("the value of topic", f"{_CHANGES}::test_the_error_shows_the_schemas_that_fit_the_record"),
    ],
    "docs/guides/doctor.md": [
        LogIn("orders.properties", "newcomer"),
        Run("tiered-stream doctor", (1,)),
        Printed("✓ bootstrap servers", loose=("CtrHENukQ2GzY8J69vY4Jg", "/opt/spark/jars")),
    ],
    "docs/guides/export.md": [
        Run("tiered-stream export"),
        Settings("subscribe=orders", "typed.properties", "orders.properties"),
        "tiered-stream export --settings typed.properties --option ingest.onDecodeError=null --into typed.parquet",
    ],
    "docs/guides/gateway.md": [
        LogIn("gateway.properties", over="conf/gateway.properties"),
        Run("tiered-stream gateway", until="listening on"),
        _THROUGH_GATEWAY,
        Elsewhere("PEX_ROOT", "tests/dist/test_gateway_file.py"),
    ],
    "docs/guides/hdfs.md": [
        NotRun("pip install", _NETWORK),
        Elsewhere("rsm.config.storage.backend.class", _HDFS),
    ],
    "docs/guides/ingest.md": [
        Program("query = "),
        Lines("subscribePattern="),
    ],
    "docs/guides/inspect.md": [Run("tiered-stream segments")],
    "docs/guides/latest-state.md": [
        Lines("# orders-latest.properties", _REGISTRY),
        Lines("ingest.tableProperty", {"ingest.mode": "upsert", "ingest.keys": "id"}),
        Lines("subscribe=shop.public.orders,shop.public.visits"),
        Run("tiered-stream verify"),
        Run("tiered-stream replay"),
        Settings("# orders-history.properties", "orders-history.properties", "orders.properties"),
        f"{_JOB} orders-history.properties",
    ],
    "docs/guides/logins.md": [
        Elsewhere("kafka.bootstrap.servers", _LOGINS),
        Elsewhere("kafka.security.protocol=SASL_SSL", _KERBEROS),
        Elsewhere("kafka.sasl.mechanism=OAUTHBEARER", _LOGINS),
        Elsewhere("# my_logins.py", _FUNCTION),
        Elsewhere("kafka.sasl.oauthbearer.token.provider", _FUNCTION),
        Elsewhere("kafka.security.protocol=SASL_SSL", "tests/broker/login/test_aws_login.py"),
    ],
    "docs/guides/lost-checkpoint.md": [Run("tiered-stream replay")],
    "docs/guides/offsets.md": [
        Program(".option(", 'records = spark.readStream.format("tiered_stream").options(**options)\\', after=""),
    ],
    "docs/guides/on-premises.md": [
        NotRun("git clone", _NETWORK),
        Elsewhere("spark.jars", _SECURED),
        Elsewhere("ingest.table=hdfs", _SECURED),
        Elsewhere("kafka.security.protocol", _SECURED),
        Elsewhere("ingest.storage.hdfs.auth", _SECURED),
        Elsewhere("export HADOOP_CONF_DIR", _SECURED),
    ],
    "docs/guides/platforms.md": [Elsewhere("the platform is Databricks", "tests/doctor/test_environment.py")],
    "docs/guides/replay.md": [Run("tiered-stream replay"), Run("tiered-stream replay")],
    "docs/guides/s3-services.md": [
        Elsewhere("remote.storage.uri=", _CONF),
        Elsewhere("spark.hadoop.fs.s3a.endpoint", _CONF),
    ],
    "docs/guides/typed-tables.md": [
        Settings("subscribe=orders", "orders.properties"),
        f"{_JOB} orders.properties 2> spark.log",
        Lines("ingest.value.format=json", _REGISTRY),
        Run("tiered-stream redrive", (3, 3)),
        Elsewhere("ALTER TABLE", "tests/delta/test_live_evolution.py"),
        Lines("ingest.times="),
        Lines("ingest.value.format=json"),
    ],
    "docs/guides/verify.md": [Run("tiered-stream verify"), Program("report = ")],
    "docs/metrics.md": [
        _LIMITED,
        Printed("26/11/21", ("spark.log",)),
        Elsewhere("26/11/21", _LOG),
        Elsewhere("…, 1 storage errors", _METRICS),
        Printed(_TABLE_LINE, loose=("s3a://lake/bronze/orders",)),
        Elsewhere(_TABLE_LINE, _SUMS),
        Elsewhere("…, 0.0 MiB from storage", "tests/read/test_ways_to_brokers.py"),
        Program(
            "from tiered_stream import", 'table, checkpoint = "s3a://lake/own/metrics", "s3a://lake/own/checkpoint"'
        ),
    ],
    "docs/start.md": [
        Elsewhere("make demo", "tests/rigs/demo/__main__.py"),
        NotRun("make stack", "it runs until Ctrl-C; tests of tests/rigs/stack/ start the same services"),
        Run("tiered-stream lag"),
    ],
    "docs/tuning.md": [
        Run("spark-submit", more=_ORDERS),
        Run("spark-submit", more=_ORDERS),
        Program("spark.conf.set"),
        Printed("26/11/21"),
    ],
    "docs/without-spark.md": [
        Elsewhere("import tiered_stream", _SCAN),
        Elsewhere("records, last", f"{_SCAN}::test_batches_come_one_after_the_other"),
        Elsewhere("import polars", f"{_SCAN}::test_polars_takes_them"),
        Elsewhere("orders = ", f"{_SCAN}::test_pandas_takes_them"),
        Elsewhere("import duckdb", f"{_SCAN}::test_duckdb_takes_them_and_writes_parquet"),
        Elsewhere("orders = ", f"{_SCAN}::test_duckdb_takes_them_and_writes_parquet"),
        Run("tiered-stream cat", (0, 130), until='"offset"'),
    ],
}
