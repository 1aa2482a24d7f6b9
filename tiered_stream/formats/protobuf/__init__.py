"""Decoder of protobuf, with the results of Spark's `from_protobuf`.

Other packages use `proto_compiler`, and `open_decoder` for the rest.

    proto_compiler     `.proto` files to descriptor sets
    protobuf_decoder   decoder of messages to a column, its types and the kernel's program
    protobuf_kernels   messages in the usual form
"""

from tiered_stream.extras import naming_extras

with naming_extras("the format protobuf"):
    from google.protobuf import descriptor_pb2  # noqa: F401
