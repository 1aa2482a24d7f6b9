"""Check of this machine's clock. A storage service refuses requests that were signed with a wrong time."""

from __future__ import annotations

from tiered_stream.doctor.finding import FaultError, NotNeededError, Result
from tiered_stream.doctor.s3_bucket import BucketResponse

_SECONDS_TO_WARN_AT = 60
_REFUSED_BY_S3 = 15 * 60
"""Clock difference in seconds above which S3 refuses a signature. Other services allow more or less."""


def check_clock(answer: BucketResponse) -> Result[bool]:
    """Check that this machine's clock differs from the storage service's clock by at most 60 s.

    If the clocks differ by more than 60 s, the result is a warning. The result's value is always True, because no other
    check needs it.

    Args:
        answer: response of the storage service to a listing of the bucket.

    Raises:
        FaultError: the service refuses requests because the clocks differ.
        NotNeededError: the response does not have the service's time.
    """
    if answer.seconds_ahead is None:
        raise NotNeededError("the service does not send its time, and Kafka's protocol has none")
    seconds = round(abs(answer.seconds_ahead))
    difference = (
        f"this machine is {seconds} s {'ahead of' if answer.seconds_ahead > 0 else 'behind'} the storage's clock"
    )
    fix = "set this machine's clock (chrony, ntpd), or the clock of the storage service"
    if answer.code == "RequestTimeTooSkewed" or (answer.status == 403 and seconds > _REFUSED_BY_S3):
        raise FaultError(f"{difference}: requests are refused ({answer.status} {answer.code})", fix)
    if seconds > _SECONDS_TO_WARN_AT:
        return Result(True, f"{difference}; S3 refuses requests from {_REFUSED_BY_S3} s on (RequestTimeTooSkewed)", fix)
    return Result(True, f"within {_SECONDS_TO_WARN_AT} s of the storage's clock")
