"""The HDFS of the stack."""

from __future__ import annotations

from tests.rigs.stack.hdfs import Hdfs


def test_a_client_reaches_the_file_system_by_the_written_settings(hdfs: Hdfs) -> None:
    jvm = hdfs.java.jvm
    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    for name in ("core-site.xml", "hdfs-site.xml"):
        conf.addResource(jvm.org.apache.hadoop.fs.Path(str(hdfs.conf_dir / name)))
    files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(conf)
    path = jvm.org.apache.hadoop.fs.Path("/test-of-the-stack")
    assert files.mkdirs(path)
    assert files.getUri().toString() == hdfs.uri and hdfs.cluster.getFileSystem().exists(path)
