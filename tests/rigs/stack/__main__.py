"""`make stack`: the local stack with one filled topic, to be played with by hand."""

from __future__ import annotations

import signal

from tests.rigs.stack.build import build_folder
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered

TOPIC = "orders"
RECORDS = 200_000
INTRODUCTION = """
Kafka broker   {stack.bootstrap_servers}
S3 endpoint    {stack.s3_endpoint}, bucket {stack.bucket}
Credentials    access key {stack.access_key}, secret key {stack.secret_key}
Everything in  {stack.folder}
Topic          {topic}: {records} records of 100 bytes, all tiered

In another terminal, in this folder:

  # look at the topic, and add a record a line to it
  .venv/bin/python -m kafka.admin -b {stack.bootstrap_servers} topics describe -t {topic}
  .venv/bin/python -m kafka.producer -b {stack.bootstrap_servers} -t {topic}

  # read it straight from the bucket: in .venv/bin/python
{python}

Ctrl-C stops both; the folder stays until the next start."""
PYTHON = """
from tests.rigs.stack.spark import spark_session
options = {{
{options}
}}
frame = spark_session("by hand").read.format("tiered_stream").options(**options).load()
frame.groupBy("partition").count().show()"""


def introduction(stack: TieredStack) -> str:
    """Return the text that explains the use of the running stack."""
    options = {**stack.options(), "subscribe": TOPIC}
    python = PYTHON.format(options="\n".join(f'    "{name}": "{value}",' for name, value in options.items()))
    indented = "\n".join(f"  {line}" for line in python.strip().splitlines())
    return INTRODUCTION.format(stack=stack, topic=TOPIC, records=RECORDS, python=indented)


def end(*_: object) -> None:
    """A SIGTERM ends the stack as Ctrl-C does, also where a shell has started it in the background."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the stack until Ctrl-C."""
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    print("Starting a Kafka broker and an S3 endpoint (the first time, their jars are fetched: 60 MB) ...", flush=True)
    try:
        with build_folder("stack") as folder, TieredStack(folder) as stack:
            create_tiered_topic(stack.broker, TOPIC, partitions=2)
            produce_bulk(stack.broker, TOPIC, RECORDS)
            roll(stack.broker, TOPIC)
            wait_until_tiered(stack.broker, TOPIC)
            print(introduction(stack), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("\nStopped.", flush=True)


if __name__ == "__main__":
    main()
