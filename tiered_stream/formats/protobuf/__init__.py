"""Decoder of protobuf, with the results of Spark's `from_protobuf`.

Other packages use `proto_compiler`, and create the decoder by `formats/open_decoder.py`.

    proto_compiler     compilation of `.proto` files to descriptor sets
    protobuf_decoder   decoder of messages to a column, and the column's type
    protobuf_kernels   compiled functions that read messages in the usual form
"""

from tiered_stream.extras import naming_extras

with naming_extras("the format protobuf"):
    from google.protobuf import descriptor_pb2  # noqa: F401
