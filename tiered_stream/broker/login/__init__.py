"""Logins at brokers (SASL), TLS, and the stores of keys and certificates.

Files that other packages import:

- `sasl`: `sasl.*` properties, and the user and password in a JAAS entry
- `tls`: `ssl.*` properties as a TLS context
- `key_stores`: key and trust stores in PEM, PKCS12 and JKS

`oauthbearer`, `aws_login` and `kerberos` are the mechanisms with renewed tokens, credentials or tickets.
`renewed_login` renews tokens and credentials before they expire.
"""
