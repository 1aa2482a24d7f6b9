from tiered_stream.errors import ConfigurationError

try:
    import google.protobuf  # noqa: F401
except ImportError as error:
    raise ConfigurationError("the format protobuf needs the package protobuf: pip install 'protobuf>=7,<8'") from error
