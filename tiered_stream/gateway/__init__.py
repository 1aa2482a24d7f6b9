"""Gateway: a proxy between Kafka consumers and brokers without KIP-1248, which adds the segment locations of KIP-1248.

If a Fetch request asks for locations of tiered segments, the gateway adds them to the broker's response. The command
line imports `gateway_program`; no other package imports the gateway.

- `gateway_program`: gateway as a program that runs until a signal.
- `gateway_settings`: settings of the gateway.
- `server`: listeners, background tasks and shutdown.
- `listener_tls`: certificates for clients' connections.
- `gateway_metrics`: Prometheus metrics.
- `sockets`: connections, memory and flow control.
- `protocol`: Kafka's messages and the state of a connection, without I/O.
- `locations`: lookup, signing and encoding of segment locations.
"""
