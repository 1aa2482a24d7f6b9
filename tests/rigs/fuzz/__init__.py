"""Mutated bytes for every parser: records or our own error, within a second of a core, within a bound of memory.

`make fuzz` runs it for minutes, a few hundred cases of each target run with the unit tests, and what was found once is
kept in `corpus/TARGET/NAME` and replayed there.
"""
