"""`make bench`: what was promised to be fast, measured beside Spark's own Kafka source in the same run."""
