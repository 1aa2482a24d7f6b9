"""Addresses of tables, the session's Java errors, and the platform that a session runs on.

Files that other packages import:

- `address`: addresses of tables (a path, or a name in Spark's catalog)
- `java_errors`: inspection and translation of the JVM's errors, which reach Python in two classes
- `platforms`: detection of managed Spark platforms, such as Databricks
- `session_checks`: Spark session of a command, and checks that it has the classes and settings for a table
"""
