"""Messages of Kafka's protocol that kafka-python lacks, and our changes of kafka-python.

Files that other packages import:

- `kafka_python`: connections and requests of our own on kafka-python's network layer
- `location_messages`: Fetch messages with the fields of KIP-1248 and KIP-1254, for the places of tiered segments
"""
