from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kerberos.kdc import why_no_kerberos
from tests.kerberos.realm import Realm, realm
from tests.rigs.stack.shared import shared


@pytest.fixture(scope="module")
def here() -> Iterator[Realm]:
    """A realm, by whose `krb5.conf` this process logs in."""
    if missing := why_no_kerberos():
        pytest.skip(missing)
    running = shared(realm)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running.kdc.environment.items():
            patch.setenv(name, value)
        for name in ("KRB5CCNAME", "KRB5_CLIENT_KTNAME"):
            patch.delenv(name, raising=False)
        yield running
