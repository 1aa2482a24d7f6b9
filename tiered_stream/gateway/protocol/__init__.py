"""Kafka's protocol as far as the gateway must read it. No I/O.

`sockets` and `locations` import these modules.

- `frames`: frames and request headers.
- `connection_state`: requests without a response, login and readable topics of one connection.
- `location_requests`: decoder of Fetch requests that ask for locations.
- `authorization`: Fetch that asks the broker for authorization, and its response with locations.
- `api_versions`: APIs and versions that clients are offered, and rewriting of responses.
- `broker_addresses`: gateway's addresses for brokers, and their replacement in responses.
"""
