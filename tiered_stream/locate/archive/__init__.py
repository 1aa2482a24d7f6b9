"""Locator and offset reader for a bucket that is read without its Kafka cluster.

Files that other packages import:

- `archived_partitions`: contents of the archive
- `archive_offsets`: offsets at which the archive's partitions begin and end
- `archive_locator`: locations of offset ranges

`archive_listing` lists the copies of segments in the bucket, and finds segments below key prefixes that are not read.
"""
