"""Tools around the sink: doctor, report, transactions, the job with its replay, a local Kafka."""
