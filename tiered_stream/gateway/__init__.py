"""The broker side of KIP-1248 in front of stock brokers: passes everything on, and says where tiered segments are."""
