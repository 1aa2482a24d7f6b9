"""`tiered-stream warm`: compile the kernels and Spark's Python archives, before Spark's Python processes need them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.errors import TieredStreamError


def warm(
    pyspark: Annotated[bool, typer.Option("--pyspark", help="Compile Spark's pyspark.zip and py4j, too.")] = False,
) -> None:
    """Compile the decoder now and store the result next to its code, so that no executor has to compile it.

    Run this in the environment before you pack it, on the same kind of machine as the executors.
    """
    with cli.exit_codes():
        _compile_kernels()
        if pyspark:
            _compile_pyspark()


def _compile_kernels() -> None:
    # Imported late, because other commands do not need numba.
    from tiered_stream.records import compiled

    folder = compiled.packaged_folder()
    try:
        (folder / compiled.kernel_key(*compiled.KERNELS)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TieredStreamError(
            f"the compiled kernels cannot be stored in {folder}: {error.strerror}; run this command as the user who "
            "installed the package"
        ) from error
    # Imported only after the folder exists, because the kernels' modules look for the folder when they are imported.
    from tiered_stream.formats.avro import avro_decoder
    from tiered_stream.formats.json import json_decoder
    from tiered_stream.records.decoder import ONE_RECORD, compile_kernels
    from tiered_stream.records.row_hash import row_hashes
    from tiered_stream.records.value_scan import scan_values

    rows = compile_kernels(_ONE_MESSAGE)
    row_hashes(rows, ())
    json_decoder.compile_kernels()
    avro_decoder.compile_kernels()
    for _ in scan_values(ONE_RECORD, {}):
        pass
    if find_spec("google") and find_spec("google.protobuf"):
        from tiered_stream.formats.protobuf import protobuf_decoder

        protobuf_decoder.compile_kernels()
    typer.echo(f"the decoder's kernels are compiled in {folder}, and decode {rows.num_rows} record")


def _compile_pyspark() -> None:
    from tiered_stream.pythons.pyspark_archives import compile_archive, find_archives, loaded_modules

    try:
        for archive, modules in loaded_modules(find_archives()).items():
            count = compile_archive(archive, modules)
            typer.echo(f"{count} modules are compiled in {archive}")
    except OSError as error:
        raise TieredStreamError(
            f"Spark's archive cannot be written: {error}; run this command as the user who installed Spark"
        ) from error


_ONE_MESSAGE = bytes.fromhex("00000000000000010000000ea7ec68030000ffffffffffffffff")
