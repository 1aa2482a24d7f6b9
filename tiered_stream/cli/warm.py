"""`tiered-stream warm`: compile the decoder's kernels into the installed package."""

from __future__ import annotations

import typer

from tiered_stream.records import compiled


def warm() -> None:
    """Compile the decoder now, beside its code, so that a packed environment carries it and no executor compiles.

    Run it in the environment before you pack it, on the kind of machine that the executors are.
    """
    folder = compiled.packaged_folder()
    try:
        (folder / compiled.kernel_key(compiled.KERNELS)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        typer.echo(f"the kernels cannot be kept in {folder}: {error.strerror}; run this as who installed it", err=True)
        raise typer.Exit(1) from error
    # Imported late: the kernels find their folder when they are first imported.
    from tiered_stream.records.decoder import RecordBatchDecoder

    (rows,) = RecordBatchDecoder("", 0, 0, 1, check_crcs=False).feed(_ONE_RECORD)
    typer.echo(f"the decoder's kernels are compiled in {folder}, and decode {rows.num_rows} record")


_ONE_RECORD = bytes.fromhex(
    "0000000000000000" "0000003a" "ffffffff" "02" "00000000" "0000" "00000000" "0000000000000000" "0000000000000000"
    "ffffffffffffffff" "ffff" "ffffffff" "00000001" "10" "00" "00" "00" "02" "61" "02" "62" "00"
)  # fmt: skip
