"""A checkpoint's folder without Spark."""

from __future__ import annotations


class FolderInMemory:
    """As `CheckpointFolder`."""

    folder = "memory"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def entries(self, name: str = "") -> list[str]:
        prefix = f"{name}/" if name else ""
        return sorted({path.removeprefix(prefix).split("/")[0] for path in self.files if path.startswith(prefix)})

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, text: bytes, *, replace: bool = False) -> None:
        if replace or name not in self.files:
            self.files[name] = text

    def delete(self, name: str) -> None:
        self.files.pop(name, None)
