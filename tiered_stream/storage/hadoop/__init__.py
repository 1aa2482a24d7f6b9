"""Settings and errors of the client of HDFS.

Files that other packages import:

- `client_errors`: errors of hdfs-native (a client in Rust) as text: their parts, and the fix of a login that fails
- `client_settings`: Hadoop's settings for the client of HDFS, and the name by which its delegation tokens are found
"""
