"""Options: their declarations, their parsing into frozen values, and settings files.

Files that other packages import:

- `parsing`: all options of a query as one frozen `Options`
- `spark_options`, `remote_options`: declarations of the source's options
- `given_options`: options as the user gave them, and dataclass fields for the values of options
- `types`: classes that declare options and properties, and parsers of values
- `choices`: enums for options whose value is one of a few words
- `positions`: start and end positions, and times
- `offset_json`, `offset_ranges`: offsets as Spark writes them, and ranges between them
- `settings_files`: settings of jobs, commands and Spark, with the files and lines where they were written
- `plugin_properties`: properties of storage plugins
- `unknown_names`: known names that are similar to an unknown name
"""
