"""`make emulators`: build the servers that come as sources, so that no test waits for a build within its time limit."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.rigs.stack.azurite import azurite_program, why_no_azurite
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.fake_gcs import fake_gcs_executable, why_no_fake_gcs
from tests.rigs.stack.versitygw import versitygw_executable, why_no_versitygw

PROGRAMS = (
    (why_no_versitygw, versitygw_executable),
    (why_no_fake_gcs, fake_gcs_executable),
    (why_no_azurite, azurite_program),
)


def main() -> int:
    """Build what can be built here. What cannot is no error, because tests of it are skipped, or fail, by name."""
    with ThreadPoolExecutor(len(PROGRAMS)) as builds:
        for each in [builds.submit(build) for missing, build in PROGRAMS if missing() is None]:
            try:
                each.result()
            except StackError as error:
                sys.stderr.write(f"{error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
