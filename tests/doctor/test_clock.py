"""What the doctor says of this machine's clock, by a service's response."""

from __future__ import annotations

import pytest

from tests.doctor.test_s3_bucket import answer
from tiered_stream.doctor.clock import check_clock
from tiered_stream.doctor.finding import FaultError, NotNeededError
from tiered_stream.doctor.s3_bucket import BucketResponse


@pytest.mark.parametrize(("ahead", "warns"), [(0, False), (60, False), (-61, True), (400, True), (-4000, True)])
def test_a_clock_may_be_a_minute_off(ahead: float, warns: bool) -> None:
    assert bool(check_clock(answer(ahead=ahead)).fix) == warns


@pytest.mark.parametrize(
    "given",
    [answer(403, "RequestTimeTooSkewed"), answer(403, "RequestTimeTooSkewed", ahead=400), answer(403, "X", ahead=-901)],
)
def test_a_clock_for_which_the_service_refuses_is_a_fault(given: BucketResponse) -> None:
    with pytest.raises(FaultError, match=f"403 {given.code}"):
        check_clock(given)


def test_a_refusal_for_another_reason_is_not_the_clocks() -> None:
    seen = check_clock(answer(403, "AccessDenied", ahead=400))
    assert "400 s ahead" in seen.description and "900 s" in seen.description


def test_without_a_date_nothing_is_said_of_the_clock() -> None:
    with pytest.raises(NotNeededError):
        check_clock(answer(ahead=None))
