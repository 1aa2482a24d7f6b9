"""Clients that are not ours, each a program that produces to brokers or consumes through the gateway.

`produce SERVERS TOPIC` sends a record for each line `KEY<tab>VALUE` of its standard input, and ends with it.
`consume SERVERS TOPIC GROUP` prints `Partition:N<tab>Offset:N<tab>KEY<tab>VALUE` of each record, as Kafka's own console
consumer does, until it is ended.
"""
