"""The Kafka wire, on kafka-python's protocol and net layers: connect, security, metadata, offsets, raw fetch."""
