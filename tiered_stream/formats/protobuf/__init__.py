from tiered_stream.errors import ConfigurationError

try:
    from google.protobuf import descriptor_pb2  # noqa: F401
except ImportError as error:
    raise ConfigurationError("the format protobuf needs the package protobuf: pip install 'protobuf>=7,<8'") from error
