"""Format of a table's rows, and the steps from decoded values to rows.

Other packages import all of these modules.

    row_choices      enums of the options for rows; it does not import Arrow
    row_format       format of a table's rows, as the driver sends it to tasks
    kafka_columns    Kafka's columns in rows, where they may have other names or be hidden
    row_steps        conversion of numbers to times, conditions and select lists, a user's function
    change_records   Debezium's envelope, deletes, keys, and placeholders for unchanged values
    table_rules      NOT NULL, lengths of texts, and CHECK constraints
"""
