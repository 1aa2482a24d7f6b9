"""Checks that need no network: settings, versions of Python and packages, Java, compiled kernels, and platform."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.delta.catalog.platforms import find_platform
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.doctor.finding import Examination, FaultError, Known, Result, collected_warnings
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.errors import ConfigurationError
from tiered_stream.options import spark_options as spark
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.settings_files import gives, without
from tiered_stream.options.types import Option
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES

T = TypeVar("T")

SETTINGS = "settings"
_DISTRIBUTION = "tiered-stream"
_OLDEST_JAVA = 17
_ENDINGS = (spark.ENDING_OFFSETS.name, spark.ENDING_OFFSETS_BY_TIMESTAMP.name)
_API_TIMEOUT, _API_TIMEOUT_MS = "default.api.timeout.ms", "15000"
"""Client property for the time limit of one call of a client, and the doctor's default in ms (Kafka's is 60,000)."""


@dataclass(frozen=True, slots=True)
class Job:
    """Job to check: the source's options, all settings, and pairs of a table and its query's checkpoint (`tables`).

    `tables` is empty if the settings name neither a table nor a checkpoint. If the settings name only one of them, the
    other value of the pair is None.
    """

    options: Options
    settings: Mapping[str, str] = field(repr=False)  # it may have secrets
    """Settings as the user gave them, including `ingest.*`."""
    tables: tuple[tuple[str | None, str | None], ...]

    def setting(self, option: Option[T]) -> T:
        """Return the parsed value of a setting of the ingest job, or its default.

        Raises:
            ConfigurationError: the value is malformed.
        """
        return GivenOptions(self.settings).read(option)


def check_environment(examination: Examination, settings: Mapping[str, str]) -> Known[Job]:
    """Run all checks that need no network; return the job that the settings describe.

    The job's value is None if the settings are wrong.
    """
    job = examination.check(SETTINGS, lambda: _parse(settings))
    lands = gives(settings, (ingest.TABLE,))
    examination.check("Python and packages", lambda: _check_packages(lands))
    examination.check("Java", lambda: _check_java(lands))
    examination.check("compiled kernels", _check_kernels)
    return job


def _parse(settings: Mapping[str, str]) -> Result[Job]:
    with collected_warnings() as warned:
        ingest.check_names(settings, ingest.JOB_SETTINGS)
        others = without(settings, ingest.JOB_SETTINGS)
        if gives(settings, (ingest.TABLE,)):
            _, options = check_settings(others, ingest.job_settings(settings).get(ingest.LANE) or "auto")
        else:
            options = parse_options(ingest.source_options(others), streaming=not gives(others, _ENDINGS))
        if options.locator is not LocatorName.ARCHIVE:
            options = replace(options, kafka={_API_TIMEOUT: _API_TIMEOUT_MS, **options.kafka})
            BrokerConfig.parse(options.kafka)
    job = Job(options, settings, _tables(settings))
    if warned:
        return Result(job, "; ".join(warned), "correct or remove these settings")
    return Result(job, f"{len(settings)} settings are understood")


def _tables(settings: Mapping[str, str]) -> tuple[tuple[str | None, str | None], ...]:
    table, checkpoint = map(ingest.job_settings(settings).get, (ingest.TABLE, ingest.CHECKPOINT))
    if table is None and checkpoint is None:
        return ()
    for name, path in ((ingest.TABLE, table), (ingest.CHECKPOINT, checkpoint)):
        if "@" in (parts := urlsplit(path or "")).netloc and parts.scheme not in AZURE_SCHEMES:
            raise ConfigurationError(f"{name} has credentials in it: give them by spark.hadoop.fs.s3a.*, or by a role")
    if ingest.TOPIC not in (checkpoint or ""):
        return ((table, checkpoint),)  # one pair, because one query writes all tables
    topics = GivenOptions(ingest.source_options(settings)).read(spark.SUBSCRIBE)
    if not topics or ingest.TOPIC not in (table or ""):
        raise ConfigurationError(
            f"with {ingest.TOPIC} in {ingest.CHECKPOINT}, {ingest.TABLE} needs it too, and topics come by subscribe"
        )
    return tuple((table and table.replace(ingest.TOPIC, topic), checkpoint and checkpoint.replace(ingest.TOPIC, topic))
                 for topic in topics)  # fmt: skip


def _check_packages(lands: bool) -> Result[bool]:
    """Check the versions of Python and of the packages that this package's metadata requires.

    Args:
        lands: True if the job writes Delta tables. The requirements of the extras `spark` and `delta` are then checked,
            too. If it is False, pyspark is checked only if it is installed.

    Raises:
        FaultError: a package is missing, or a version does not meet the requirements.
    """
    if lands and not has_pyspark():
        raise FaultError(
            "pyspark is missing",
            "pip install 'tiered-stream[spark,delta]', or run the doctor with the Python of your platform's Spark",
        )
    python = platform.python_version()
    try:
        metadata = importlib.metadata.metadata(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return Result(True, f"Python {python}; {_DISTRIBUTION} was not installed by pip: its requirements are unknown")
    extras = ("", "spark", "delta") if lands else ("", "spark") if has_pyspark() else ("",)
    wrong = list(_wrong_packages(metadata.get_all("Requires-Dist") or [], extras))
    needed = metadata["Requires-Python"]
    if not SpecifierSet(needed).contains(python):
        raise FaultError(f"this is Python {python}; {needed} is needed", f"run it with Python {needed}")
    if wrong:
        names = " ".join(f"'{requirement}'" for requirement, _ in wrong)
        description = ", ".join(f"{requirement.name} {installed or 'is missing'}" for requirement, installed in wrong)
        raise FaultError(description, f"pip install {names}")
    shown = ("pyspark", "delta-spark", "deltalake") if lands else ("pyspark",)
    versions = (f"{name} {_version(name) or 'is not installed'}" for name in shown)
    return Result(True, ", ".join((f"Python {python}", *versions)))


def has_pyspark() -> bool:
    """Return whether this Python has pyspark, as an installed package or from a Spark distribution."""
    return find_spec("pyspark") is not None


def _version(package: str) -> str | None:
    """Return the installed version of a package, or None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        if package != "pyspark" or not has_pyspark():
            return None
    # A Spark distribution on PYTHONPATH has no metadata of a package.
    from pyspark.version import __version__

    return __version__


def _wrong_packages(requires: list[str], extras: Sequence[str]) -> Iterator[tuple[Requirement, str | None]]:
    """Yield each requirement that is not met, with the installed version, or None if there is none.

    Args:
        requires: texts of requirements, as in a package's metadata (`Requires-Dist`).
        extras: names of the extras whose requirements are checked; the empty name is for requirements of no extra.
    """
    for requirement in map(Requirement, requires):
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        installed = _version(requirement.name)
        if installed is None or not requirement.specifier.contains(installed, prereleases=True):
            requirement.marker = None
            yield requirement, installed


def _check_java(lands: bool) -> Result[bool]:
    home = os.environ.get("JAVA_HOME")
    executable = str(Path(home, "bin", "java")) if home else shutil.which("java")
    fix = f"install Java {_OLDEST_JAVA} or newer, and set JAVA_HOME to it"
    try:
        command = [executable or "java", "-version"]
        version_text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        description = f"no java at {executable or 'PATH'}: only commands without Spark work"
        if lands:
            raise FaultError(description, fix) from None
        return Result(True, description, fix)
    version = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        raise FaultError(
            f"{executable} says: {version_text.strip().splitlines()[:1]}; Spark needs {_OLDEST_JAVA} or newer", fix
        )
    return Result(True, f"Java {version[1]} at {executable}")


def _check_kernels() -> Result[bool]:
    # Imported late, because importing numba takes 0.5 s.
    from tiered_stream.records import compiled

    folder = compiled.cache_folder(compiled.kernel_key(*compiled.KERNELS))
    if folder is None:
        description = "there is no folder for compiled kernels: each process compiles them again"
        fix = "run `tiered-stream warm` as the user who installed the package, or set XDG_CACHE_HOME"
        return Result(True, description, fix)
    if not any(folder.rglob("*.nbc")):
        description = f"not compiled yet, {folder} is empty: the first task compiles them, which takes some ten seconds"
        return Result(True, description, "run `tiered-stream warm` in the environment that the executors use")
    return Result(True, f"there, in {folder}")


def check_platform(examination: Examination, spark: SparkConf) -> None:
    """Report a warning if this process runs on a managed platform, such as Databricks, where jobs were never tried.

    On any other machine, report nothing.
    """
    platform = find_platform(os.environ, spark.values.get, _version("pyspark") or "", lambda _: False)
    if platform is not None:
        fix = "start with a copy of a table, and compare it by `tiered-stream verify`"
        examination.check("platform", lambda: Result(True, str(platform), fix))
