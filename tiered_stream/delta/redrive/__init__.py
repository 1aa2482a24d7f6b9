"""Redrive of dead letters into the tables of their topics.

Files that other packages import:

- `redrive_run`: run of a redrive, which moves dead letters that decode now

Files of this package alone:

- `dead_letter_marks`: protocol and marks of redrives
- `job_dead_letters`: selection of one ingest job's dead letters from a table for dead letters
- `redriven_table`: table to which a redrive appends the rows of dead letters, or into which it merges rows with keys
"""
