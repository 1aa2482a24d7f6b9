"""Time limit of the programs that print AWS credentials (`credential_process` of a profile), which botocore lacks."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import Any

from botocore.credentials import AssumeRoleProvider, ProcessProvider
from botocore.session import Session


def bound_programs(session: Session, seconds: float) -> None:
    """Limit each program that `session` starts for credentials to `seconds` seconds.

    When the time is over, the program is killed with all programs that it has started, and the session's provider
    raises TimeoutError.
    """

    def start(command: list[str], **pipes: Any) -> _Program:
        return _Program(command, seconds, **pipes)

    def provider(profile: str) -> ProcessProvider:
        return ProcessProvider(profile, lambda: session.full_config, start)

    resolver: Any = session.get_component("credential_provider")
    for each in resolver.providers:
        if isinstance(each, ProcessProvider):
            each._popen = start  # type: ignore[attr-defined]
        elif isinstance(each, AssumeRoleProvider):  # whose source profile may have a program
            each._profile_provider_builder._create_process_provider = provider  # type: ignore[attr-defined]


class _Program(subprocess.Popen[bytes]):
    """Process in a separate process group, which is killed as a whole if the process runs longer than `seconds`."""

    def __init__(self, command: list[str], seconds: float, **pipes: Any) -> None:
        self._seconds = seconds
        super().__init__(command, start_new_session=True, **pipes)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        try:
            return super().communicate(input, self._seconds)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise TimeoutError(f"the program of credential_process has not ended within {self._seconds:g} s") from None
