"""Where the time of a test run goes: seconds and core seconds of each test, file and folder.

TEST_TIMES=build/test-times .venv/bin/python -m pytest -p tests.rigs.test_times.plugin …
.venv/bin/python -m tests.rigs.test_times build/test-times
"""
