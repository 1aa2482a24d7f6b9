"""Python processes of the driver, which are forked with all imports done.

Files that other packages import:

- `forked_python`: program that Spark runs in place of Python
- `forks`: check that a process can be forked safely, and preparation of its forks
- `pyspark_archives`: bytecode in Spark's archives

`fork_server` and `fork_client` are programs.
"""
