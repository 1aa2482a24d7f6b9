"""How tests talk to an S3 endpoint on loopback: a boto3 client, and what Spark's `s3a` file system has to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

REGION = "us-east-1"


def s3_client(endpoint: str, access_key: str, secret_key: str) -> S3Client:
    """A client that addresses buckets by path and does not try again."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            retries={"max_attempts": 1},
            connect_timeout=1,
        ),
    )


def answers(client: Callable[[], S3Client]) -> bool:
    """Return true if the endpoint responds to a ListBuckets request."""
    try:
        client().list_buckets()
    except (BotoCoreError, ClientError):
        return False
    return True


def s3a_settings(endpoint: str, access_key: str, secret_key: str, bucket: str | None = None) -> dict[str, str]:
    """Hadoop's settings for the endpoint, of one bucket or of all; in Spark's configuration after `spark.hadoop.`.

    Spark needs the jars of the group `s3a` for them.
    """
    prefix = f"fs.s3a.bucket.{bucket}." if bucket else "fs.s3a."
    settings = {
        "endpoint": endpoint,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "access.key": access_key,
        "secret.key": secret_key,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        # The other implementations need jars of their own.
        "input.stream.type": "classic",
        "connection.ssl.enabled": "false",
    }
    return {prefix + name: value for name, value in settings.items()}
