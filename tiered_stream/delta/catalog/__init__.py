"""Addresses of tables, the session's Java errors, and the platform that a session runs on.

Files that other packages import:

- `address`: addresses of tables (a path, or a name in Spark's catalog)
- `java_errors`: inspection and translation of the JVM's errors, which reach Python in two classes
- `platforms`: detection of managed Spark platforms, and the rules that follow for tables there
- `session_checks`: a command's session, its platform, and checks that it has what a table or a checkpoint needs
"""
