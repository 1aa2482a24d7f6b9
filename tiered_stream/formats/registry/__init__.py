"""Decoders of values that name their schema in a schema registry, and the registry's client.

Other packages import `schema_registry`. They open the decoders with `formats.open_decoder`.

    schema_registry    settings, client and cache
    writer_schemas     ids in values and headers, and the schemas that they name
    registry_decoder, registry_json, registry_protobuf    decoders of the formats
"""
