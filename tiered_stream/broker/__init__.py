"""Client of a Kafka cluster, on kafka-python's protocol and net layers: metadata, offsets and raw records.

Files that other packages import:

- `client`: client of one cluster, shared by all tasks of a process
- `broker_check`: check at the start of a query or a command that the brokers respond
- `client_properties`: Kafka's client properties, parsed and checked
- `kafka_properties`: declarations of all client properties, and a reader of given values
- `cluster_metadata`: topics, partitions and leaders
- `offset_reader`: interface for the offsets at which partitions begin and end
- `list_offsets`: offset reader that asks brokers, and topic settings
- `group_offsets`: committed offsets of a consumer group
- `leader_epochs`: leader epochs of partitions, with the end offset of each epoch
- `location_fetch`: tiered segments that hold an offset range, and the range's bytes in them (KIP-1248)
- `record_fetch`: record bytes from an offset on, or of an offset range
- `kafka_errors`: conversion of Kafka's errors into errors of `tiered_stream.errors`

Only files of this folder use `connections` and `leader_requests`. `leader_requests` repeats a request if a partition's
leader has moved to another broker.
"""
