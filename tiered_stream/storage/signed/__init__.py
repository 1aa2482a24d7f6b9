"""Reads of segments by signed URLs, without a credential for the storage.

Files that other packages import:

- `presigned`: fetcher that reads segments by signed URLs (KIP-1254's preferred way)
- `signed_hosts`: hosts to which signed URLs of segments (signed locations, KIP-1248) may lead
"""
