"""Kafka's own reader of JAAS strings, in a Java process of its own: the judge of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from java_classes import errors_of_py4j
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from spark_kafka_sink.tools.local_kafka import class_path, java_home

#: login module and options, or None for a text that Java refuses
Login = tuple[str, dict[str, str]]


@contextmanager
def java_jaas() -> Iterator[Callable[[str], Login | None]]:
    """The function that reads ``sasl.jaas.config`` as Kafka's clients do."""
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    java = str(java_home() / "bin" / "java")
    port, token = launch_gateway(
        classpath=class_path(),
        jarpath=str(py4j),
        java_path=java,
        enable_auth=True,
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        with errors_of_py4j():
            yield _reader(gateway)
    finally:
        gateway.shutdown()


def _reader(gateway: JavaGateway) -> Callable[[str], Login | None]:
    jvm = gateway.jvm
    common = jvm.org.apache.kafka.common
    password, load = common.config.types.Password, common.security.JaasContext.loadClientContext
    settings = jvm.java.util.HashMap
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()

    def read(text: str) -> Login | None:
        configuration = settings()
        configuration.put("sasl.jaas.config", password(text))
        try:
            entry = load(configuration).configurationEntries().get(0)
        except Py4JJavaError:
            return None
        options = settings(entry.getOptions())
        options.remove(None)  # what precedes = may be no word
        return entry.getLoginModuleName(), json.loads(mapper.writeValueAsString(options))

    return read
