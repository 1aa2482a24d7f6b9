"""Kafka's message definitions for the records of `__remote_log_metadata` (storage/src/main/resources/message)."""
