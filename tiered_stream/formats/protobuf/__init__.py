from tiered_stream.extras import naming_extras

with naming_extras("the format protobuf"):
    from google.protobuf import descriptor_pb2  # noqa: F401
