"""Gateway between Kafka clients and stock brokers. It passes on consumers' requests, and adds KIP-1248.

If a Fetch request asks for locations of tiered segments, the gateway adds them to the broker's response.
"""
