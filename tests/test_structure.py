"""The house rules that a machine can check: which way imports go, and how large files and functions are."""

from __future__ import annotations

import ast
import graphlib
import pickle
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import tiered_stream
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.tier.topics import PARTITION, TierFolder
from tiered_stream.model import OffsetRange, Split, TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.spark.source import BatchReader
from tiered_stream.spark.split_partition import SplitPartition

PACKAGE = Path(tiered_stream.__file__).parent

LAYERS = (
    {"errors", "process", "pythons.forks", "pythons.fork_client", "pythons.forked_python"},
    {"extras", "kerberos_codes", "data_limits", "timed_http", "spark.session"},
    {"model"},
    {"records"},
    {"formats"},
    {"options"},
    {"observe"},
    {"storage", "broker"},
    {"locate"},
    {"read"},
    {"plan"},
    {"spark", "read.scanner"},
    {"delta", "gateway", "spark.reporting"},
    {"inspection", "verification", "worker_daemon"},
    {"replays", "doctor", "ingest", "pythons"},
    {"export"},
    {"cli"},
    {"__main__"},
)
"""From the bottom up: a package imports itself and lower layers, never its neighbours.

Modules that stand in another layer than their package have an entry of their own.
"""

FOLDER_MODULES_MAX = 20
FILE_LINES_MAX = 500
FUNCTION_LINES_P90, FUNCTION_LINES_MAX = 30, 60


@cache
def modules() -> dict[str, ast.Module]:
    """Every module that is not empty, by its path in the package."""
    paths = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    return {path: ast.parse(source) for path, source in paths.items() if source.strip()}


@cache
def nodes_of_modules() -> dict[str, list[ast.AST]]:
    """All nodes of every module, by its path; to walk through the trees takes longer than most checks."""
    return {path: list(ast.walk(tree)) for path, tree in modules().items()}


@cache
def imports_of(path: str) -> list[str]:
    """The imports of the module with this path."""
    return list(imports(modules()[path]))


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all modules that are imported, wherever in the file: by type checkers, or late."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, "relative imports hide where a name comes from"
            if node.module == "tiered_stream":
                yield from (f"tiered_stream.{alias.name}" for alias in node.names)
            else:
                yield node.module


def package(name: str) -> str:
    """The package of a module, `name` being its path or the part of its dotted name after `tiered_stream.`."""
    return name.removesuffix(".py").replace("/", ".").split(".")[0]


def layer(name: str) -> int:
    """The layer of a module, by its own entry or its package's; `name` as for `package`."""
    module = name.removesuffix(".py").replace("/", ".")
    for entry in (".".join(module.split(".")[:2]), package(name)):
        for number, entries in enumerate(LAYERS):
            if entry in entries:
                return number
    raise AssertionError(f"say in LAYERS where the new package {package(name)} belongs")


def users_of(library: str) -> set[str]:
    """The modules that import a library."""
    return {path for path in modules() if any(name.split(".")[0] == library for name in imports_of(path))}


def test_imports_go_one_way() -> None:
    upward = [
        f"{path} imports {name}"
        for path in modules()
        if path != "__init__.py"
        for name in imports_of(path)
        if name.startswith("tiered_stream.")
        for theirs in [name.removeprefix("tiered_stream.")]
        if package(path) != package(theirs) and layer(theirs) >= layer(path)
    ]
    assert upward == []


def test_sub_packages_of_a_package_form_no_circle() -> None:
    """Their late imports count, too. A module that lies in no sub-package stands for itself."""
    files = {_dotted(path): nodes for path, nodes in nodes_of_modules().items()}
    graph: dict[str, set[str]] = {}
    for name, nodes in files.items():
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                parts = {_part(each) for each in _ours(node, files) if each.split(".")[1:2] == name.split(".")[1:2]}
                graph.setdefault(_part(name), set()).update(parts - {_part(name)})
    graphlib.TopologicalSorter(graph).prepare()


def _part(name: str) -> str:
    """The sub-package of a module, or the module: `tiered_stream.delta.commit` of all that lie in it."""
    return ".".join(name.split(".")[:3])


def test_no_folder_has_more_modules_than_one_can_look_over() -> None:
    folders = Counter(str(Path(path).parent) for path in modules() if Path(path).name != "__init__.py")
    assert {folder: count for folder, count in folders.items() if count > FOLDER_MODULES_MAX} == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports within functions, and imports for type checkers alone, count too."""
    files = {_dotted(path): nodes for path, nodes in nodes_of_modules().items()}
    graph = {
        name: {
            imported
            for node in nodes
            for each in ([node] if isinstance(node, ast.Import | ast.ImportFrom) else [])
            for imported in _ours(each, files)
        }
        for name, nodes in files.items()
    }
    assert sum(map(len, graph.values())) > len(graph)
    graphlib.TopologicalSorter(graph).prepare()


def _dotted(path: str) -> str:
    return ".".join(("tiered_stream", *Path(path).with_suffix("").parts)).removesuffix(".__init__")


def _ours(node: ast.Import | ast.ImportFrom, files: Collection[str]) -> Iterator[str]:
    """The package's modules that a statement imports, a package being its `__init__`."""
    for name in imports(node):
        members = [f"{name}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        yield from {each for each in (name, *members) if each in files}


def test_the_log_format_knows_nobody() -> None:
    for path in modules():
        if package(path) == "records":
            names = set(imports_of(path))
            ours = {package(name.removeprefix("tiered_stream.")) for name in names if name.startswith("tiered_stream.")}
            assert ours <= {"records", "errors", "data_limits", "model", "process"}, path
            assert not {name.split(".")[0] for name in names} & {"socket", "asyncio", "boto3", "pyspark"}, path


def test_each_library_is_imported_in_its_place() -> None:
    assert users_of("boto3") == {"storage/s3_client.py"}
    obstore_users = ("cloud_store", "azure", "gcs", "s3", "s3_client")
    assert users_of("obstore") == {f"storage/{name}.py" for name in obstore_users}
    assert users_of("opentelemetry") == {"observe/open_telemetry.py"}
    spark_users = {"spark", "observe", "delta", "verification", "replays", "ingest", "cli", "worker_daemon", "pythons"}
    spark_users |= {"doctor"}  # for its version
    assert {package(path) for path in users_of("pyspark")} <= spark_users
    assert {package(path) for path in users_of("deltalake")} <= {"delta"}
    assert {package(path) for path in users_of("confluent_kafka")} <= {"replays"}
    assert {package(path) for path in users_of("numba")} == {"records"}
    assert {package(path) for path in users_of("typer")} <= {"cli", "gateway"}


def test_options_are_parsed_only_where_users_give_them() -> None:
    """Code below gets parsed values: `Options`, `QuerySettings` or `TableSpec`."""
    given = "tiered_stream.options.given_options.GivenOptions"
    users = {
        path
        for path, nodes in nodes_of_modules().items()
        for node in nodes
        if isinstance(node, ast.ImportFrom) and given in (f"{node.module}.{alias.name}" for alias in node.names)
    }
    assert {path for path in users if not path.startswith(("options/", "delta/settings/"))} == {
        "broker/broker_check.py",
        "doctor/environment.py",
        "gateway/gateway_settings.py",
        "ingest/ingest_plan.py",
        "ingest/ingest_run.py",
        "replays/topic_settings.py",
        "spark/source.py",
    }


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("tiered_stream", {"pyspark", "boto3", "numba", "kafka", "pyarrow"}),
        ("tiered_stream.spark.source", {"boto3", "botocore", "numba", "kafka", "deltalake"}),
        ("tiered_stream.options.parsing", {"pyspark", "boto3", "numba", "kafka", "pyarrow"}),
        ("tiered_stream.records.decoder", {"pyspark", "boto3", "kafka", "asyncio"}),
        ("tiered_stream.delta.landing.data_files_source", {"numpy", "pyarrow", "boto3", "numba", "kafka", "deltalake"}),
        ("tiered_stream.delta.landing.land", {"boto3", "botocore", "numba", "kafka", "deltalake"}),
        ("tiered_stream.verification.sums_source", {"boto3", "botocore", "numba", "kafka", "deltalake"}),
        ("tiered_stream.verification.verify_table", {"boto3", "botocore", "numba", "deltalake"}),
        ("tiered_stream.read.split_reader", {"pyspark", "boto3", "kafka", "obstore", "urllib3"}),
        ("tiered_stream.cli", {"pyspark", "boto3", "numba", "pyarrow", "kafka"}),
        ("tiered_stream.inspection.tier_contents", {"pyspark", "boto3", "numba"}),
        ("tiered_stream.plan.read_cost", {"pyspark", "boto3"}),
        ("tiered_stream.inspection.lag_report", {"pyspark", "boto3"}),
        ("tiered_stream.verification.storage_comparison", {"pyspark", "boto3"}),
    ],
)
def test_importing_a_module_does_not_bring_in_what_it_does_not_need(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert not absent & set(loaded.stdout.split())


READ_A_SPLIT = """
import pickle, sys
reader, partition, batch = pickle.load(sys.stdin.buffer)
if not partition.split.locations:
    from tests.broker.scripted import MetadataRequest, ScriptedClient, fetched, metadata
    from tiered_stream.broker import client
    broker = ScriptedClient(lambda _, message: metadata() if type(message) is MetadataRequest else fetched(batch))
    client.open_client = lambda properties: broker
assert sum(rows.num_rows for rows in reader.read(partition)) == 1
print(*sys.modules)
"""


@pytest.mark.parametrize("tiered", [False, True])
def test_a_worker_that_reads_a_split_imports_neither_planner_nor_locator_nor_gateway(
    tmp_path: Path, tiered: bool
) -> None:
    """From what Spark unpickles to the last row, of a split that the broker serves, and of one in a folder."""
    batch = record_batch([Record(value=b"v")])
    given = {"subscribe": "t", "kafka.bootstrap.servers": "scripted:1", "remote.storage.uri": tmp_path.as_uri()}
    reader = BatchReader(parse_options(given, streaming=False))
    split = Split(TopicPartition("t", 0), OffsetRange(0, 1))
    if tiered:
        location = TierFolder(tmp_path).write([batch], 1).location()
        split = Split(PARTITION, location.offsets, (location,))
    task = pickle.dumps((reader, SplitPartition(split), batch))

    loaded = subprocess.run([sys.executable, "-c", READ_A_SPLIT], input=task, capture_output=True, cwd=PACKAGE.parent)

    assert loaded.returncode == 0, loaded.stderr.decode()
    names = set(loaded.stdout.decode().split())
    ours = {package(name.removeprefix("tiered_stream.")) for name in names if name.startswith("tiered_stream.")}
    assert not ours & {"locate", "plan", "gateway", "delta", "replays", "cli"}
    assert not {name.split(".")[0] for name in names} & {"boto3", "urllib3", "deltalake", *(["kafka"] * tiered)}
    assert "broker" not in ours or not tiered


def test_no_module_needs_anothers_private_names() -> None:
    """Neither those of a module or an object, nor those of a class that it inherits from."""
    defined = {path: set(_defined(nodes)) for path, nodes in nodes_of_modules().items()}
    ours = set().union(*defined.values())
    foreign = [
        f"{path}:{node.lineno} {name}"
        for path, nodes in nodes_of_modules().items()
        for node in nodes
        for name in _private_names(node)
        if name in ours - defined[path]
    ]
    assert foreign == []


def _private_names(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tiered_stream"):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        names = [node.attr]
    yield from (name for name in names if name.startswith("_") and not name.endswith("__"))


def _defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.Name(ctx=ast.Store()):
                yield node.id


def test_files_are_small() -> None:
    lines = {path: len((PACKAGE / path).read_text().splitlines()) for path in modules()}
    assert {path: count for path, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_functions_fit_a_screen() -> None:
    lines = {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, nodes in nodes_of_modules().items()
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: count for name, count in lines.items() if count > FUNCTION_LINES_MAX} == {}
    assert statistics.quantiles(lines.values(), n=10)[-1] <= FUNCTION_LINES_P90


def test_no_repr_shows_settings_that_may_have_secrets() -> None:
    shown = [
        f"{path}: {node.name}.{ast.unparse(field.target)}"
        for path, nodes in nodes_of_modules().items()
        for node in nodes
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and ast.unparse(field.annotation) == "Mapping[str, str]"
        and ast.unparse(field.target).endswith(("settings", "options"))
        and "repr=False" not in (ast.unparse(field.value) if field.value else "")
    ]
    assert shown == []
