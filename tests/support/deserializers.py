"""Confluent's deserializers, as the tests use them."""

from __future__ import annotations

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer


def avro_deserializer(client: SchemaRegistryClient, schema: str | None = None) -> AvroDeserializer:
    """It does not ask for associations: Apicurio 3.3.3 has none, and may never say so."""
    return AvroDeserializer(client, schema, conf={"subject.name.strategy.type": "TOPIC"})
