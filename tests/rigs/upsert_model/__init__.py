"""Model of tables of the latest state: random histories of change records, after which the table is the model's map."""
