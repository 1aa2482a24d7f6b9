"""The job as a user of YARN submits it, with the environment that `make dist` packs and no other Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.dist.packed_environment import with_python_by_path
from tests.jobs.submitted import SubmittedJob, jars
from tests.rigs.stack.spark import DELTA, LOCAL, ROOT, SHORT_LIVED_JAVA, SPARK_SUBMIT, write_conf
from tests.rigs.stack.spark_cluster import BARE_PATH
from tests.rigs.stack.yarn import Yarn

ENVIRONMENT_PYTHON = "./environment/bin/python"


class YarnJob(SubmittedJob):
    """One submission of `jobs/ingest_to_delta.py`; the output of `spark-submit` goes to `log_file`.

    Args:
        folder: for its settings, its staged files and its log.
        mode: `client` or `cluster`.
        settings: lines of the job's settings file.
        archive: the packed environment.
        files: more files for the containers, as for `--files`.
        spark: more Spark properties.
    """

    def __init__(
        self,
        yarn: Yarn,
        folder: Path,
        mode: str,
        settings: Mapping[str, str],
        archive: Path,
        files: Sequence[Path] = (),
        spark: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.log_file = folder, folder / "submit.log"
        self._yarn = yarn
        properties = folder / "job.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        write_conf(folder / "spark.conf", {**_spark(folder, mode), **(spark or {})})
        shipped = [properties, *files] if mode == "cluster" else [*files]
        self._command = [
            *(str(SPARK_SUBMIT), "--properties-file", str(folder / "spark.conf"), "--master", "yarn"),
            *("--deploy-mode", mode, "--archives", f"{archive}#environment"),
            *(["--files", ",".join(map(str, shipped))] if shipped else []),
            *(str(ROOT / "jobs" / "ingest_to_delta.py"), "--settings", properties.name),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, variables: Mapping[str, str] | None = None) -> None:
        """Start it; `variables` are more of its environment."""
        environment = {**with_python_by_path(), **self._yarn.environment(), **(variables or {})}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def run(self, variables: Mapping[str, str] | None = None) -> int:
        """Start it, and return the exit status."""
        self.start(variables)
        return self.wait()

    def output(self) -> str:
        """What `spark-submit` and the containers have printed."""
        files = [self.log_file, *self._yarn.logs()]
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')[-6000:]}" for file in files if file.exists())


def _spark(folder: Path, mode: str) -> dict[str, str]:
    ours = {name: value for name, value in LOCAL.items() if name != "spark.master"}
    jvm = {f"spark.{role}.extraJavaOptions": SHORT_LIVED_JAVA for role in ("driver", "executor", "yarn.am")}
    if mode == "cluster":
        jvm.pop("spark.yarn.am.extraJavaOptions")  # Spark refuses it there
        jvm["spark.pyspark.python"] = ENVIRONMENT_PYTHON
        # There the driver has the address of its container.
        ours = {name: value for name, value in ours.items() if not name.startswith("spark.driver.")}
    own = {"PATH": BARE_PATH, "HOME": os.environ.get("HOME", "/"), "SPARK_LOCAL_IP": "127.0.0.1"}
    variables = {
        f"spark.{role}.{name}": value for role in ("executorEnv", "yarn.appMasterEnv") for name, value in own.items()
    }
    return {
        **ours, **jvm, **variables, **DELTA, **jars("delta"),
        "spark.driver.memory": "1g",
        "spark.executor.memory": "600m",
        "spark.executor.instances": "2",
        "spark.yarn.am.memory": "512m",
        # The jars are on each node, so that they are not uploaded for each job.
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
        "spark.yarn.stagingDir": (folder / "staging").as_uri(),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),  # a path without a scheme would be one in HDFS
        "spark.yarn.submit.waitAppCompletion": "true",
    }  # fmt: skip
