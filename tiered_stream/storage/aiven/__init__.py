"""Layout of the segments of Aiven's tiered storage plugin.

Files that other packages import:

- `aiven_fetcher`: fetcher for the layout of Aiven's tiered storage plugin
- `custom_metadata`: decoder and encoder of the Aiven plugin's custom metadata of a segment
- `encryption`: the Aiven plugin's encryption: one AES key per segment
- `manifest`: parser of the Aiven plugin's `.rsm-manifest`: JSON that describes a segment's chunks

Files of this package alone:

- `chunks`: mapping of a log's bytes to the chunks of a transformed segment, and to bytes of the segment's object
"""
