"""Tools around the sink: doctor, report, the job with its replay, a local Kafka and registry."""
