"""Caches, memory settings, log output and resources of one Python process.

Files that other packages import:

- `caches`: values that are loaded once, and objects that all tasks of a process share
- `heap_and_gc`: settings of the heap and of garbage collection
- `logs`: log lines
- `resources`: CPU cores and memory that the process may use
- `private_folder`: folders to which only the user can write
"""
