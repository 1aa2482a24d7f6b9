"""Choice of the way to write to a table's folder: as a local folder, or by uploads to an object store or to HDFS."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tiered_stream.delta.settings.ingest_settings import BUCKET_SCHEMES, TableSpec
from tiered_stream.delta.write.data_folder import DataFolder, LocalFolder
from tiered_stream.delta.write.uploads import UploadThreads


def open_data_folder(spec: TableSpec, threads: UploadThreads) -> DataFolder:
    """Return the table's folder (`files.uri`) for one task to write to.

    If the folder is in an object store, `threads` upload its files. A local folder does not use them.

    Raises:
        OSError: the task has no credentials for the object store.
    """
    scheme = urlsplit(spec.uri).scheme
    if scheme == "s3":
        from tiered_stream.delta.write.s3_upload import S3Uploads

        return S3Uploads(spec, threads)
    if scheme in BUCKET_SCHEMES:
        from tiered_stream.delta.write.cloud_uploads import CloudUploads

        return CloudUploads(spec, threads)
    return LocalFolder(Path(unquote(urlsplit(spec.uri).path)))
