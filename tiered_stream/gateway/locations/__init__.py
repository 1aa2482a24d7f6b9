"""Segment locations that the gateway adds to responses.

`server` and `sockets` import these modules.

- `location_workers`: threads that work on location requests, with fair turns for clients.
- `location_responses`: encoded locations, with a cache.
- `tiered_segments`: lookup of segments with the gateway's own login.
- `faulty_partitions`: partitions whose segments could not be looked up.
- `signing`: signed URLs of segments.
"""
