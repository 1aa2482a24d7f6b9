"""Object stores, HDFS and folders in which tiered segments are, and the layouts of storage plugins.

Files that other packages import:

- `cloud_endpoints`: names, endpoints and credentials of buckets and containers in object stores, from options
- `cloud_store`: object store over an S3 bucket, a Google Cloud Storage bucket or an Azure Blob Storage container
- `fetcher`: KIP-1254's extension point: the interface of a class that reads tiered segments and their indexes
- `hdfs_store`: object store over a folder in HDFS, by hdfs-native (a client in Rust): each object is a file
- `object_store`: interface of an object store, with only the operations that readers of segments need
- `obstore_errors`: errors of obstore as text: the failure of an attempt that each of them stands for
- `open_fetcher`: functions that open the fetcher that the options name
- `open_store`: function that opens the object store that a storage URI names
- `read_ahead`: read-ahead, which sends several of a task's ranged GETs at once, and yields their bytes in order
- `request_window`: choice of the number and the size of GETs to have in flight
- `s3`: access of `cloud_store` to an S3 bucket: obstore's clients with their credentials, and errors
- `s3_client`: credentials, region and URL of an S3 bucket by AWS's own rules, from boto3
- `segment_places`: search of a bucket or folder for segments, for errors about wrong settings
- `throttle`: limit of bytes, or of requests, a second: a token bucket whose balance of bytes may become negative

Files of this package alone:

- `attempts`: time limits of the attempts of a request, and the errors of a request whose attempts fail
- `azure`: access of `cloud_store` to an Azure Blob Storage container
- `file_store`: a folder as an object store (`file:///folder`): each object is a file
- `gcs`: access of `cloud_store` to a Google Cloud Storage bucket
- `local_layout`: fetcher for the layout of Kafka's `LocalTieredStorage`
"""
