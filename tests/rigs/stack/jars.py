"""The jars of the stack: pinned in `conf/stack/jars.tsv`, fetched by the Ivy that pyspark carries, kept in a cache.

A jar lies in the cache as `jars/SHA256/NAME-VERSION.jar` and gets there by a rename after its checksum was verified,
so that being there means being right.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from tests.rigs.stack.errors import StackError
from tests.rigs.stack.java import java_command

CONF = Path(__file__).parents[3] / "conf" / "stack"
SPARK = ".".join(pyspark.__version__.split(".")[:2])
ATTEMPTS = 3

IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={cache} artifactPattern="{pattern}"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
IVY_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tiered_stream" module="stack"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}
    <conflict manager="all"/>
  </dependencies>
</ivy-module>
"""
IVY_PATTERN = "[organisation]/[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of `jars.tsv`; `group` says what needs it (column `for`)."""

    group: str
    organisation: str
    name: str
    version: str
    classifier: str
    sha256: str

    @property
    def artifact(self) -> str:
        """The jar's name without the versions of Spark and Scala in it."""
        return self.name.partition("_")[0]

    @property
    def file_name(self) -> str:
        return "-".join(part for part in (self.name, self.version, self.classifier) if part) + f".{self.extension}"

    @property
    def extension(self) -> str:
        """Return the file's extension: with the classifiers `all` and `plugin`, a program is packed with its jars."""
        return "tar.gz" if self.classifier in ("all", "plugin") else "jar"

    @property
    def path(self) -> Path:
        """Where it lies in the cache, once it is there."""
        return cache_dir() / "jars" / self.sha256 / self.file_name


def cache_dir() -> Path:
    """`TIERED_STREAM_CACHE`, else `tiered_stream` in `XDG_CACHE_HOME` or `~/.cache`: outside the checkout."""
    own = os.environ.get("TIERED_STREAM_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiered_stream"


def pinned_jars(groups: Collection[str]) -> list[Jar]:
    """The jars of the groups, as pinned; `delta@4.1` has the jars of `delta` that Spark 4.1 needs in other versions.

    Raises:
        StackError: there is no such group.
    """
    with open(CONF / "jars.tsv", newline="") as file:
        rows = [Jar(*row) for row in csv.reader(file, delimiter="\t")][1:]
    known = {jar.group for jar in rows}
    if unknown := set(groups) - known:
        raise StackError(f"no jar group {sorted(unknown)}; there are {sorted(known)}")
    own = {jar.artifact: jar for jar in rows if jar.group in {f"{group}@{SPARK}" for group in groups}}
    return [own.get(jar.artifact, jar) for jar in rows if jar.group in groups]


def jar_paths(*groups: str) -> list[Path]:
    """The jar files of the groups, fetched first where the cache lacks them.

    Raises:
        StackError: a jar could not be had, or does not have its pinned SHA-256.
    """
    jars = pinned_jars(groups)
    if _missing(jars):
        with _cache_lock():
            _fetch(jars)
    return [jar.path for jar in jars]


def _missing(jars: Collection[Jar]) -> list[Jar]:
    return list({jar.path: jar for jar in jars if not jar.path.exists()}.values())  # two groups may share a jar


@contextmanager
def _cache_lock() -> Iterator[None]:
    cache_dir().mkdir(parents=True, exist_ok=True)
    with open(cache_dir() / "jars.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(jars: Collection[Jar]) -> None:
    output = ""
    for _ in range(ATTEMPTS):
        missing = _missing(jars)  # asked anew: another process may have fetched them, or an attempt some of them
        if not missing:
            return
        with tempfile.TemporaryDirectory(prefix="ivy-", dir=cache_dir()) as folder:
            output = _run_ivy(missing, Path(folder))
            for jar in missing:
                _keep(jar, Path(folder, "cache", jar.organisation, jar.file_name))
    if missing := _missing(jars):
        names = ", ".join(f"{jar.organisation}:{jar.file_name}" for jar in missing)
        raise StackError(f"could not fetch {names}\n{output[-3000:]}")


def _run_ivy(jars: Collection[Jar], folder: Path) -> str:
    cache = quoteattr(str(folder / "cache"))
    Path(folder, "settings.xml").write_text(IVY_SETTINGS.format(cache=cache, pattern=IVY_PATTERN))
    Path(folder, "ivy.xml").write_text(_ivy_module(jars))
    ivy = sorted(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    arguments = ["-settings", str(folder / "settings.xml"), "-ivy", str(folder / "ivy.xml")]
    command = java_command("org.apache.ivy.Main", ivy, arguments, [f"-Divy.default.ivy.user.dir={folder}"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _ivy_module(jars: Collection[Jar]) -> str:
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        modules.setdefault((jar.organisation, jar.name, jar.version), []).append(jar)
    dependencies = []
    for (organisation, name, version), those in modules.items():
        extras = [(jar.extension, f' m:classifier="{jar.classifier}"' if jar.classifier else "") for jar in those]
        artifacts = "".join(f'<artifact name="{name}" type="{of}" ext="{of}"{extra}/>' for of, extra in extras)
        dependencies.append(
            f'\n    <dependency org="{organisation}" name="{name}" rev="{version}" transitive="false"'
            f' conf="default-&gt;*">{artifacts}</dependency>'
        )
    return IVY_MODULE.format(dependencies="".join(dependencies))


def _keep(jar: Jar, fetched: Path) -> None:
    if not fetched.exists():
        return
    found = hashlib.sha256(fetched.read_bytes()).hexdigest()
    if found != jar.sha256:
        raise StackError(f"{jar.organisation}:{jar.file_name} has SHA-256 {found}; jars.tsv says {jar.sha256}")
    jar.path.parent.mkdir(parents=True, exist_ok=True)
    fetched.replace(jar.path)
