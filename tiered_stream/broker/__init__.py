"""Kafka client on kafka-python's protocol and net layers: connections, security, metadata, offsets, raw fetches."""
