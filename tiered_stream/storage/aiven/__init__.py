"""Layout of the segments of Aiven's tiered storage plugin.

Files that other packages import:

- `aiven_fetcher`: fetcher for the layout of Aiven's tiered storage plugin
- `custom_metadata`: decoder and encoder of the Aiven plugin's custom metadata of a segment
- `encryption`: the Aiven plugin's encryption: one AES key per segment
- `manifest`: parser of the Aiven plugin's `.rsm-manifest`, and mapping of a log's bytes to the bytes of its chunks
"""
