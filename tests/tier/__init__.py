"""Tiers as a broker leaves them, made without a broker: of record batches, segments and indexes, objects, and records.

`segments` does a broker's part, `layouts` a storage plugin's, `metadata` the part of `__remote_log_metadata`, and
`topics` writes a topic that an archive query reads. `test_broker_tiers` compares all of them with real brokers.
`fetchers` has bases of fetchers for segments that exist by their metadata alone (`described`).
"""
