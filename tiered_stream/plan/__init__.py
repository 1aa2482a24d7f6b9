"""Offsets and splits of a query, planned on the driver.

Files that other packages import:

- `batch`: splits of a batch query
- `stream`: start, and the end and offset ranges of each micro-batch of a stream
- `splits`: splits of offset ranges
- `starting`: offsets of the positions in the options, such as `startingOffsets`
- `offset_lookup`: look-ups of partitions and offsets, with retries
- `data_loss`: checks for lost records, and the error or warning that `failOnDataLoss` chooses
- `pruning`: conditions on topics, partitions, offsets and times that restrict a read
- `broker_splits`: check whether brokers must send all tiered offsets
- `read_cost`: estimate of a read's requests, bytes, time and money
- `tiering_delay`: delay after which brokers copy a closed segment to the tier

`batch_limits` applies `maxOffsetsPerTrigger` and the other limits of a micro-batch. `stream_bounds` keeps the start and
the end of a stream.
"""
