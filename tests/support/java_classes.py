"""Kafka's and Spark's own classes, in a Java process without a Spark session."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyspark
from py4j import java_gateway
from py4j.java_gateway import JavaGateway, JavaMember
from py4j.protocol import Py4JJavaError, get_return_value
from spark_jars import kafka_jars

from spark_kafka_sink.tools.local_kafka import class_path
from spark_kafka_sink.tools.local_servers.java import java_home

# Looking up the names of servers that do not exist would take long.
_NAMED_SERVER = re.compile(r"[a-z][\w.-]*(?=:\d)", re.ASCII | re.IGNORECASE)

_ANY_TOKEN_ENDPOINT = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=http://127.0.0.1:1/token"


def spark_class_path() -> str:
    """The JARs of Spark, of its Kafka connector, and of the Kafka client that this one uses."""
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    return os.pathsep.join([*kafka_jars().split(","), str(jars)])


def newest_class_path() -> str:
    """The JARs of the newest Kafka, and then those of Spark."""
    return os.pathsep.join([class_path().split(os.pathsep)[0], spark_class_path()])


@contextmanager
def errors_of_py4j() -> Iterator[None]:
    """Errors of another Java process as py4j raises them: PySpark would ask the session's Java."""
    pysparks = java_gateway.get_return_value
    java_gateway.get_return_value = get_return_value
    try:
        yield
    finally:
        java_gateway.get_return_value = pysparks


@contextmanager
def java_classes(jars: str) -> Iterator[JavaClasses]:
    """The classes of these JARs; those of the first JAR that has one."""
    gateway = JavaGateway.launch_gateway(
        classpath=jars,
        javaopts=["-XX:TieredStopAtLevel=1", _ANY_TOKEN_ENDPOINT],
        java_path=str(java_home() / "bin" / "java"),
        die_on_exit=True,
        enable_auth=True,
    )
    try:
        with errors_of_py4j():
            yield JavaClasses(gateway)
    finally:
        gateway.shutdown()
        gateway.java_process.stdin.close()
        gateway.java_process.wait(30)


@dataclass(frozen=True)
class Verdict:
    """What Spark's own sink and Java's producer make of options."""

    #: accepted, refused, or what is missing here: a file, a class, a login
    outcome: str
    message: str = ""
    #: settings that the producer does not know, in lower case and without ``kafka.``
    unknown: tuple[str, ...] = ()


class JavaClasses:
    """Calls of static methods, and the questions of tests."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._outcomes: dict[object, Verdict] = {}  # by settings that the producer knows
        self.producer_names = self.names(
            "org.apache.kafka.clients.producer.ProducerConfig", "configNames"
        )

    def names(self, class_name: str, member: str) -> set[str]:
        """Names of settings, from a static method or field that has them or defines them."""
        members = self._class(class_name)
        names = getattr(members, member)
        names = names() if isinstance(names, JavaMember) else names
        return set(names if isinstance(names, Collection) else names.names())

    def constants(self, class_name: str, end: str = "") -> set[str]:
        """The values of the static texts of a class whose names end so."""
        values = set()
        for field in self._jvm.java.lang.Class.forName(class_name).getDeclaredFields():
            is_text = field.getType().getName() == "java.lang.String"
            is_static = self._jvm.java.lang.reflect.Modifier.isStatic(field.getModifiers())
            if is_text and is_static and field.getName().endswith(end):
                field.setAccessible(True)
                values.add(field.get(None))
        return values

    def verdict(self, options: Mapping[str, str]) -> Verdict:
        """Of Spark's own sink and of Java's producer, which meets no broker."""
        try:
            settings = self._producer_settings(options)
        except Py4JJavaError as error:
            return Verdict("refused", f"Spark: {error.java_exception.getMessage()}")
        unknown = set(settings.keySet()) - self.producer_names
        for name in unknown:
            settings.remove(name)
        key = tuple(sorted(dict(settings).items()))
        if key not in self._outcomes:
            self._outcomes[key] = self._outcome(settings)
        return replace(self._outcomes[key], unknown=tuple(sorted(unknown)))

    def login_module(self, text: str) -> tuple[str, dict[str, str]] | None:
        """Login module and options in a JAAS string; None if it is malformed."""
        password = self._jvm.org.apache.kafka.common.config.types.Password(text)
        configuration = self._java_map({"sasl.jaas.config": password})
        context = self._jvm.org.apache.kafka.common.security.JaasContext
        try:
            entry = context.loadClientContext(configuration).configurationEntries()[0]
        except Py4JJavaError:
            return None
        return entry.getLoginModuleName(), dict(entry.getOptions())

    def _producer_settings(self, options: Mapping[str, str]) -> Any:
        # Of two names that differ in their case, Spark takes the last one.
        texts = {name.lower(): text for name, text in options.items()}
        servers = texts.get("kafka.bootstrap.servers", "")
        texts["kafka.bootstrap.servers"] = _NAMED_SERVER.sub("127.0.0.1", servers)
        scala_map = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(
            self._java_map(texts)
        )
        spark = "org.apache.spark.sql"
        insensitive = self._module(f"{spark}.catalyst.util.CaseInsensitiveMap").apply(scala_map)
        provider = self._module(f"{spark}.kafka010.KafkaSourceProvider")
        return self._jvm.java.util.HashMap(provider.kafkaParamsForProducer(insensitive))

    def _outcome(self, settings: Any) -> Verdict:
        try:
            producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
        except Py4JJavaError as error:
            causes = list(_causes(error.java_exception))
            message = " / ".join(f"{name}: {text}" for name, text in causes)
            verdict = Verdict(_kind(causes), message)
            setting = _setting_of_class(message)
            if verdict.outcome != "a class" or setting not in settings.keySet():
                return verdict
            # Its class hides what else is wrong.
            settings.remove(setting)
            others = self._outcome(settings)
            return verdict if others.outcome == "accepted" else others
        producer.close(self._jvm.java.time.Duration.ZERO)
        return Verdict("accepted")

    def _java_map(self, entries: Mapping[str, object]) -> Any:
        result = self._jvm.java.util.HashMap()
        for name, value in entries.items():
            result.put(name, value)
        return result

    def _class(self, name: str) -> Any:
        return self._gateway.jvm.__getattr__(name)

    def _module(self, name: str) -> Any:
        return getattr(self._class(f"{name}$"), "MODULE$")


def _causes(exception: Any) -> Iterator[tuple[str, str]]:
    """Class and message of an exception and of its causes."""
    while exception is not None:
        yield exception.getClass().getSimpleName(), str(exception.getMessage())
        exception = exception.getCause()


# What closes a producer without its reporters hides that their class was not found.
_NO_REPORTER = "clientTelemetryReporter"
_SIGNS_OF_NO_CLASS = ("could not be found", "cannot be found", "No LoginModule found", _NO_REPORTER)


def _setting_of_class(message: str) -> str:
    """The setting that names a class that is not here."""
    if _NO_REPORTER in message:
        return "metric.reporters"
    matched = re.search(r"for configuration (\S+): Class .*could not be found", message)
    return matched[1] if matched else ""


def _kind(causes: Iterable[tuple[str, str]]) -> str:
    names = {name for name, _ in causes}
    texts = " ".join(text for _, text in causes)
    if names & {"NoSuchFileException", "FileNotFoundException"}:
        return "a file"
    if any(sign in texts for sign in _SIGNS_OF_NO_CLASS):
        return "a class"
    return "a login" if "LoginException" in names else "refused"
