"""Object stores, HDFS and folders in which tiered segments are, and the layouts of storage plugins.

Files that other packages import:

- `cloud_endpoints`: names, endpoints and credentials of buckets and containers in object stores, from options
- `cloud_store`: object store over an S3 bucket, a Google Cloud Storage bucket or an Azure Blob Storage container
- `fetcher`: interface of a class that reads tiered segments and their indexes (KIP-1254)
- `hdfs_store`: object store over a folder in HDFS, by hdfs-native (a client in Rust): each object is a file
- `object_store`: interface of an object store, with only the operations that this package needs
- `obstore_errors`: parser of the texts of obstore's errors
- `open_fetcher`: functions that open a fetcher of tiered segments, as the options say
- `open_store`: function that opens the object store that a storage URI names
- `read_ahead`: read-ahead, which sends several of a task's ranged GETs at once, and yields their bytes in order
- `request_window`: choice of the number and the size of GETs to have in flight
- `s3`: access to an S3 bucket for `cloud_store`: obstore's clients with their credentials, and advice in errors
- `s3_client`: credentials, region and URL of an S3 bucket by AWS's own rules, from boto3
- `segment_places`: search of a bucket or folder for segments, for errors about wrong settings
- `throttle`: limit of bytes, or of requests, a second: a token bucket whose balance of bytes may become negative

Files of this package alone:

- `attempts`: repetition of failed requests within time limits, and the errors if all attempts fail
- `azure`: access to an Azure Blob Storage container for `cloud_store`
- `file_store`: a folder as an object store (`file:///folder`): each object is a file
- `gcs`: access to a Google Cloud Storage bucket for `cloud_store`
- `local_layout`: fetcher for the layout of Kafka's `LocalTieredStorage`
"""
