"""Redrives, which decode dead letters again and move them into the tables of their topics.

Files that other packages import:

- `redrive_run`: redrive, which decodes dead letters again and moves dead letters that decode now into tables

Files of this package alone:

- `dead_letter_marks`: marks of redrives in a table for dead letters, and the protocol for the marks
- `job_dead_letters`: selection of one ingest job's dead letters from a table for dead letters
- `redriven_table`: table to which a redrive appends the rows of dead letters, or into which it merges rows with keys
"""
