"""Connections of the gateway: accepting, relaying and closing them, with limits on their memory.

`server` imports them.

- `listening_ports`: listeners for clients, and a port for each broker.
- `client_connections`: all client connections, with limits on their number.
- `relay`: copies requests and responses of one connection.
- `streams`: byte streams to one peer.
- `frame_memory`: memory budget of all connections.
"""
