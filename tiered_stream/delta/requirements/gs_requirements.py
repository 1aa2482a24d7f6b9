"""Requirements that the session's `fs.gs.*` settings can set for a writer, for Google's connector and Hadoop's own.

They are part of the list in `writer_requirements.py`. Names here are without `fs.gs.`. Settings of credentials, of the
proxy and of HTTP may also have the prefix `google.cloud.`, which `fs.gs.` overrides. Sources: `CONFIGURATION.md` of
gcs-connector 2.2, 3.0 and 4.0, and `GoogleHadoopFileSystemConfiguration` of hadoop-gcp 3.5.
"""

from __future__ import annotations

from functools import partial

from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries

GS_PREFIX, CLOUD_PREFIX = "fs.gs.", "google.cloud."
AUTH_TYPE, KEY_FILE, ROOT_URL = "auth.type", "auth.service.account.json.keyfile", "storage.root.url"
GOOGLES_CONNECTOR = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
HADOOPS_CONNECTOR = "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem"
SHARED_PREFIXES = ("auth.", "http.", "proxy.", "token.")
"""Beginnings of the names that may also have the prefix `google.cloud.`."""
_entries = partial(entries, Kind.SESSION, prefix=GS_PREFIX)

GS_REQUIREMENTS: tuple[Requirement, ...] = (
    *_entries(
        Handling.HONOURED, AUTH_TYPE,
        note="`APPLICATION_DEFAULT`, `COMPUTE_ENGINE`, `SERVICE_ACCOUNT_JSON_KEYFILE` and `UNAUTHENTICATED`. Others "
        "lead to the Spark lane. Also with the prefix `google.cloud.`",
    ),
    *_entries(
        Handling.HONOURED, KEY_FILE,
        note="The file must be on all nodes. Without `fs.gs.auth.type`, it leads to the Spark lane.",
    ),
    *_entries(Handling.HONOURED, ROOT_URL, note="For Google's connector. Hadoop's own ignores it."),
    *_entries(
        Handling.SPARK_LANE, "impl", note="Other than Google's connector and Hadoop's own.",
        off=OFF | {GOOGLES_CONNECTOR.lower(), HADOOPS_CONNECTOR.lower()},
    ),
    *_entries(
        Handling.SPARK_LANE, "storage.service.path", note="Other than `storage/v1/`.", off=OFF | {"storage/v1/"}
    ),
    *_entries(
        Handling.SPARK_LANE, "token.server.url", note="Other than Google's.",
        off=OFF | {"https://oauth2.googleapis.com/token"},
    ),
    *_entries(
        Handling.SPARK_LANE, "requester.pays.mode", note="Other than `DISABLED`.", off=OFF | {"disabled"}
    ),
    *_entries(
        Handling.SPARK_LANE,
        "auth.access.token.provider", "auth.access.token.provider.impl", "auth.impersonation.*", "auth.null.enable",
        "auth.service.account.email", "auth.service.account.keyfile", "auth.service.account.private.key",
        "auth.service.account.private.key.id", "authorization.handler.impl", "config.override.file",
        "delegation.token.binding", "encryption.algorithm", "encryption.key", "encryption.key.hash", "proxy.address",
        "storage.http.headers.*",
    ),
    *_entries(
        Handling.SPARK_LANE, "auth.service.account.enable", note="Other than `true`.", off=OFF - {"false"} | {"true"}
    ),
    *_entries(
        Handling.NOTHING,
        "auth.client.id", "auth.client.secret", "auth.refresh.token",
        "auth.workload.identity.federation.credential.config.file", "authorization.handler.properties.*",
        "proxy.password", "proxy.username", "requester.pays.buckets", "requester.pays.project.id",
        note="It goes with the setting that takes it.",
    ),
    *_entries(
        Handling.NOTHING, "checksum.type", "grpc.checksums.enable", "write.rolling.checksum.enable",
        note="It is Spark's own check.",
    ),
    *_entries(
        Handling.NOTHING,
        "application.name.suffix", "batch.threads", "bidi.*", "block.size", "bucket.delete.enable", "client.type",
        "client.upload.type", "cloud.logging.enable", "copy.with.rewrite.enable", "create.items.conflict.check.enable",
        "fadvise.request.track.count", "glob.algorithm", "grpc.*", "hierarchical.namespace.folders.*", "http.*",
        "implicit.dir.repair.enable", "inputstream.*", "io.buffer*", "lazy.init.enable", "list.max.items.per.call",
        "marker.file.pattern", "max.requests.per.batch", "max.wait.for.empty.object.creation*", "metrics.sink",
        "operation.*", "outputstream.buffer.size", "outputstream.direct.upload.enable", "outputstream.pipe.*",
        "outputstream.sync.min.interval*", "outputstream.type", "outputstream.upload.*", "performance.cache.*",
        "project.id", "reported.permissions", "rewrite.max.*", "status.parallel.enable", "storage.client.cache.enable",
        "tracelog.enable", "vectored.read.*", "working.dir", "write.parallel.composite.upload.*",
        "write.temporary.dirs",
    ),
)  # fmt: skip
