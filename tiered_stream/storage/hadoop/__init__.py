"""Settings and errors of the client of HDFS.

Files that other packages import:

- `client_errors`: parser of the texts of errors of hdfs-native, and advice for failed Kerberos logins
- `client_settings`: Hadoop's settings for hdfs-native, and the name node's URL in the form that it needs
"""
