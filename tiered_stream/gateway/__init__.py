"""Gateway between Kafka clients and stock brokers: it passes consumers' requests on, and adds KIP-1248.

The gateway itself answers the part of a Fetch request that asks for locations of tiered segments.
"""
