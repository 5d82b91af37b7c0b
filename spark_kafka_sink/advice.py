"""[both] What causes of errors mean, and what to do; the only table, also for docs/errors.md."""

from __future__ import annotations

import os
import re
from enum import Enum
from urllib.parse import urlsplit

from spark_kafka_sink.errors import InvalidOption, LibraryUnavailable
from spark_kafka_sink.librdkafka.error_codes import error_name, error_text

# Brokers delay their answers to clients that exceed a quota, and say so nowhere else.
_CHECK_BROKERS = (
    "Check that the brokers are reachable, keep up, and do not throttle this client (quotas)"
)
_TIMESTAMP = (
    "timestamp is further from the brokers' time than the topic allows "
    "(message.timestamp.before.max.ms, message.timestamp.after.max.ms; before Kafka 4.0 also "
    "message.timestamp.difference.max.ms)"
)


class Advice(Enum):
    """A cause: its meaning and the remedy, as sentences without a full stop.

    A member is called as librdkafka calls the error, or else after the cause; then the third text
    is what users see of it.
    """

    # --- records ---------------------------------------------------------------------------------
    MSG_SIZE_TOO_LARGE = (
        "A record is larger than the topic allows",
        "Raise the topic's max.message.bytes",
        "`MSG_SIZE_TOO_LARGE` with a partition",
    )
    TOO_LARGE_FOR_CLIENT = (
        "A record is larger than the client may send",
        "Raise kafka.max.request.size, and the topic's max.message.bytes if that is smaller",
        "`MSG_SIZE_TOO_LARGE` without a partition",
    )
    TOO_LARGE_FOR_TRANSACTION = (
        "Exactly-once: a batch of records is larger than the topic allows; the sink could not read "
        "the topic's limit, or it was lowered meanwhile",
        "Grant this user DescribeConfigs on the topic, or set kafka.max.request.size below "
        "its max.message.bytes",
        "`MSG_SIZE_TOO_LARGE` with a partition (`TransactionFailed`)",
    )
    DEAD_LETTER_IS_TOO_LARGE = (
        "A dead letter is larger than the topic for them, or kafka.buffer.memory, allows: it is "
        "the whole record, with headers added",
        "Raise the max.message.bytes of dead.letter.topic, or kafka.buffer.memory if the error "
        "names it, to some kilobytes more than the largest row, and than kafka.max.request.size",
        "`the dead letter of`, with `MSG_SIZE_TOO_LARGE`",
    )
    DEAD_LETTER_WITHOUT_KEY = (
        "The topic for dead letters is compacted, and a row without a key becomes a dead letter "
        "without one; or another rule of the brokers does not allow dead letters",
        "Set cleanup.policy=delete for dead.letter.topic, or name another topic",
        "`the dead letter of`, with `INVALID_RECORD`",
    )
    INVALID_TIMESTAMP = (
        f"A {_TIMESTAMP}",
        "Correct the column that timestamp.column names or, without it, the clock of the worker",
    )
    INVALID_RECORD = (
        "A record breaks a rule of the brokers, such as that of a key in a compacted topic; or a "
        f"{_TIMESTAMP}",
        "Give each record of a compacted topic a key; or correct the column that timestamp.column "
        "names or, without it, the clock of the worker",
    )
    INVALID_MSG = (
        "Before Kafka 2.4: the topic is compacted, and a record lacks its key; otherwise records "
        "were damaged on their way",
        "Give each record a key",
        "`INVALID_MSG`, or `Invalid message` in the log",
    )
    UNSUPPORTED_COMPRESSION_TYPE = (
        "The brokers do not support the compression",
        "Set kafka.compression.type to none, or to a type that they support",
    )
    _INVALID_DIFFERENT_RECORD = (
        "Another record of the same batch was rejected",
        "Look for that record's error; or let such records become dead letters "
        "(on.record.error=dead-letter)",
    )
    RECORD_LIST_TOO_LARGE = (
        "A batch of records is larger than a segment of the topic may be",
        "Raise the topic's segment.bytes",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        "The brokers, or the topic's message.format.version, lack what the records have: their "
        "compression, their headers, or an idempotent producer",
        "Set kafka.compression.type=none, leave out the headers, or set "
        "kafka.enable.idempotence=false",
        "`UNSUPPORTED_FOR_MESSAGE_FORMAT`; with headers, also `UNKNOWN`",
    )
    INVALID_REQUIRED_ACKS = (
        "The brokers do not support this kafka.acks",
        "Set kafka.acks=all",
    )
    INVALID_REQUEST = (
        "Client and brokers do not understand each other: their versions differ too much, or "
        "something between them changes the messages",
        "Look in the log of the partition's leader; upgrade the older one, or connect without what "
        "is in between",
    )
    UNSUPPORTED_VERSION = (
        "The brokers lack what the request needs, such as the compression of its records",
        "Set kafka.compression.type=none, or upgrade the brokers",
    )
    NOT_ENOUGH_REPLICAS = (
        "Fewer replicas are in sync than the topic's min.insync.replicas, still after the last of "
        "kafka.retries",
        "Start the missing brokers, or lower min.insync.replicas; remove kafka.retries",
    )
    NOT_LEADER_FOR_PARTITION = (
        "The partition's leader is starting, changing or failing, or its disk is, still after the "
        "last of kafka.retries",
        "Let Spark repeat the task; remove kafka.retries; if it happens often, look in the log of "
        "the leader",
    )
    UNKNOWN = (
        "The brokers have an error of their own",
        "Look in the log of the partition's leader at that time",
        "`UNKNOWN`, and every error of brokers that is not in this table",
    )
    _UNKNOWN_PARTITION = (
        "The column partition names a partition that the topic does not have, or the topic has "
        "fewer partitions than before",
        "Correct the column, or make it null; if the topic was created again, repeat the task",
    )
    _MSG_TIMED_OUT = (
        "A record was not acknowledged within kafka.delivery.timeout.ms",
        f"{_CHECK_BROKERS}; raise that time if they are only slow",
    )
    _INCONSISTENT = (
        "The brokers acknowledged records, but not those before them, as may happen when a leader "
        "changes",
        "Let Spark repeat the task: its next attempt sends all of them again",
    )
    CLUSTER_AUTHORIZATION_FAILED = (
        "This user may not write with an idempotent producer",
        "Grant this user permission to write to a topic, or with brokers before Kafka 2.8 "
        "IdempotentWrite on the cluster; or set kafka.enable.idempotence=false",
        "`CLUSTER_AUTHORIZATION_FAILED`, `Cluster authorization failed`",
    )
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        "The brokers have lost records of this producer, for instance in an unclean leader "
        "election, or forget a producer that is idle, as Redpanda does "
        "(transactional_id_expiration_ms)",
        "Let Spark repeat the task: its next attempt sends all of them again; raise that time on "
        "the brokers if this happens often",
    )
    INVALID_PRODUCER_ID_MAPPING = (
        "Exactly-once: the brokers have forgotten the transactional id, because it was idle for "
        "longer than transactional.id.expiration.ms",
        "Let Spark repeat the task: its next attempt sends all records again; raise that time on "
        "the brokers if this happens often",
    )
    INVALID_PRODUCER_EPOCH = (
        "The brokers have a newer epoch of this producer than it has itself",
        "Let Spark repeat the task: its next attempt sends all records again. Exactly-once: if "
        "this happens often, two queries may use the same transactional.id.prefix or checkpoint: "
        "stop one of them",
    )
    IDEMPOTENCE_UNSUPPORTED = (
        "The brokers do not support idempotent producers",
        "Set kafka.enable.idempotence=false, or upgrade the brokers to Kafka 0.11 or later",
        "`Idempotent producer not supported`",
    )

    # --- topics ----------------------------------------------------------------------------------
    TOPIC_AUTHORIZATION_FAILED = (
        "This user may not see the topic, write to it, or create it if it is missing",
        "Grant this user permission to write to it; create it if it is missing",
    )
    UNKNOWN_TOPIC_OR_PART = (
        "The topic does not exist, and the brokers did not create it: there may be fewer of them "
        "than default.replication.factor, or a topic whose name differs only in '.' and '_'",
        "Create it, or correct its name; doctor's check topic says what prevents it",
    )
    TOPICS_NOT_CREATED = (
        "These brokers do not create topics (auto.create.topics.enable=false)",
        "Create it, or correct its name",
        "`UNKNOWN_TOPIC_OR_PART` before any task starts",
    )
    TOPIC_EXCEPTION = (
        "The brokers do not allow the topic's name, or another topic's differs only in '.' and '_'",
        "Choose another name, of at most 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
    )
    INVALID_REPLICATION_FACTOR = (
        "There are fewer brokers than the new topic would have replicas "
        "(default.replication.factor, unless its creator chooses)",
        "Start the missing brokers, or create the topic with fewer replicas",
    )
    INVALID_PARTITIONS = (
        "The new topic would have a number of partitions that the brokers do not allow "
        "(num.partitions, unless its creator chooses)",
        "Create it with another number of partitions",
    )
    INVALID_CONFIG = (
        "The new topic would have a setting that the brokers do not allow",
        "Correct its settings, or those of the brokers that new topics take over",
    )
    POLICY_VIOLATION = (
        "The brokers throttle this client, as Event Hubs does; or their policy does not allow the "
        "records, or the new topic (create.topic.policy.class.name)",
        "If they throttle it, let Spark repeat the task, and write with fewer tasks at once or "
        "give the cluster more throughput; otherwise write or create them as the policy requires",
    )
    THROTTLING_QUOTA_EXCEEDED = (
        "The brokers limit how many topics this user may create in a time "
        "(controller_mutation_rate)",
        "Wait, or let somebody else create them",
    )
    CREATION_FORBIDDEN = (
        "This user may not create the topic",
        "Grant this user permission to describe and create it, or create it yourself",
        "`cannot be created`, with `TOPIC_AUTHORIZATION_FAILED` or `CLUSTER_AUTHORIZATION_FAILED`",
    )

    # --- time ------------------------------------------------------------------------------------
    CLOSE_TIMED_OUT = (
        "The brokers are slow or down, have too few replicas in sync, or advertise addresses that "
        "executors do not reach",
        f"{_CHECK_BROKERS}; raise close.timeout.ms if they are only slow",
        "`did not acknowledge all records` (`DeadlineExceeded`)",
    )
    ANSWERS_ARE_LATE = (
        "The brokers did not answer within kafka.request.timeout.ms (by default 11 s here), so "
        "requests were repeated. Brokers that throttle a client (quotas) may answer that late",
        "If they are only slow, set kafka.request.timeout.ms to more than they take, such as "
        "60000, and close.timeout.ms, and kafka.delivery.timeout.ms if it is set, to more than "
        "twice as much",
        "`Timed out ProduceRequest in flight`",
    )
    CONNECTIONS_ARE_LATE = (
        "The brokers accept connections and then keep them waiting, or close them: they limit new "
        "connections (max.connection.creation.rate, max.connections, max.connections.per.ip), are "
        "busy or hang, or the listener has another kafka.security.protocol",
        "Raise the brokers' limit; or make fewer connections, with fewer tasks at once and "
        "spark.python.worker.reuse=true; or raise kafka.socket.connection.setup.timeout.ms, "
        "kafka.request.timeout.ms to more than that, and close.timeout.ms and kafka.max.block.ms "
        "to more than three times as much",
        "`Connection setup timed out in state`, `Disconnected` and `in state APIVERSION_QUERY`",
    )
    BUFFER_IS_FULL = (
        "The brokers accept records more slowly than the task has them, or not at all",
        f"{_CHECK_BROKERS}; raise kafka.buffer.memory or kafka.max.block.ms if they are only slow",
        "`BufferExhausted`",
    )
    METADATA_IS_LATE = (
        "The brokers do not describe the topic in time",
        "Check that the brokers are reachable; if they are only slow, raise kafka.max.block.ms, or "
        "kafka.max.block.metadata.ms with kafka.max.block.ms.include.metadata=false",
        "`MetadataTimeout`",
    )

    # --- connection and login --------------------------------------------------------------------
    NO_BROKER = (
        "A wrong name or port, a firewall, or another kafka.security.protocol than the listener's",
        "Check that kafka.bootstrap.servers is right and reachable from the driver, and that "
        "kafka.security.protocol matches the listener. If only the executors can reach the "
        "brokers, skip this check: preflight=false",
        "`no broker answered at`",
    )
    PORT_OF_HTTP = (
        "The port speaks HTTP, not Kafka's protocol",
        "Correct the port in kafka.bootstrap.servers",
        "`Invalid response size 1213486160`",
    )
    SETTINGS_REJECTED = (
        "A kafka.* option, or a file that it names, is not usable",
        "Correct the option kafka.* that the message names",
        "`the Kafka client rejects its settings`",
    )
    KEY_STORE_PASSWORD = (
        "The password of the PKCS12 key store is wrong or missing",
        "Correct kafka.ssl.keystore.password",
        "`mac verify failure`, `ssl.keystore.password` and `mandatory`",
    )
    KEY_STORE_IS_TOO_OLD = (
        "The PKCS12 key store has an encryption that OpenSSL 3 does not read, as Java 8 writes it",
        "Convert the key store once. With Java 17: keytool -importkeystore -srckeystore store.p12 "
        "-srcstoretype PKCS12 -destkeystore new.p12 -deststoretype PKCS12; then set "
        "kafka.ssl.keystore.location=new.p12. Or: openssl pkcs12 -legacy -in store.p12 -nodes -out "
        "store.pem; then set kafka.ssl.keystore.type=PEM, kafka.ssl.keystore.location=store.pem "
        "and no kafka.ssl.keystore.password",
        "`Failed to parse ssl.keystore.location PKCS#12 file` and `unsupported`",
    )
    KEY_STORE_IS_NO_PKCS12 = (
        "The key store is not a PKCS12 file",
        "Correct kafka.ssl.keystore.location, or set kafka.ssl.keystore.type",
        "`Error reading ssl.keystore.location`",
    )
    KEY_IS_UNREADABLE = (
        "The private key is encrypted with another password, or is not in PEM format",
        "Correct kafka.ssl.key.password, or kafka.ssl.keystore.location or .key",
        "`ssl.key.location failed`, `ssl.key.pem failed`",
    )
    CERTIFICATE_IS_UNREADABLE = (
        "The client's certificate is not in PEM format",
        "Correct kafka.ssl.keystore.location or .certificate.chain, or kafka.ssl.keystore.type",
        "`ssl.certificate.location failed`, `ssl.certificate.pem failed`",
    )
    TRUST_STORE_IS_UNREADABLE = (
        "The trust store has no certificate in PEM format; without one, this is the file that the "
        "environment variable SSL_CERT_FILE names",
        "Correct kafka.ssl.truststore.location or .certificates, or kafka.ssl.truststore.type; "
        "without them, correct SSL_CERT_FILE",
        "`ssl.ca.location failed`, `ssl.ca.pem`",
    )
    LOGIN_REJECTED = (
        "The user, password or mechanism is wrong, or the listener has another "
        "kafka.security.protocol",
        "Correct the user name, password or mechanism (kafka.sasl.*), or kafka.security.protocol "
        "if the listener requires another one",
        "`reject the login`",
    )
    NO_TICKET = (
        "Kerberos gives this user no ticket",
        "Run kinit on that machine, as the user of that process: it says more. Or, if there is no "
        "keytab, set kafka.sasl.jaas.config, or kafka.sasl.kerberos.principal and "
        "kafka.sasl.kerberos.keytab: the file of java.security.auth.login.config is not read",
        "`no Kerberos ticket`, `No Kerberos credentials available`",
    )
    KINIT_IS_MISSING = (
        "A program of Kerberos is not on the PATH",
        "Install krb5-user (Red Hat: krb5-workstation) on the driver and all executors, or name "
        "the program with kafka.sasl.kerberos.kinit.cmd",
        "`cannot be run`",
    )
    KEYTAB_UNREADABLE = (
        "The process cannot read the keytab",
        "Ship it with spark-submit --files, name it without a folder, and have it in the "
        "working folder of the driver, too; or put it at this path on all machines",
        "`the keytab`",
    )
    KEYTAB_WITHOUT_KEY = (
        "The keytab has no key of the principal, or an old one",
        "Correct the principal, or export the keytab again; klist -k -t shows whose keys it has",
        "`no suitable keys`, `Preauthentication failed`",
    )
    KERBEROS_PRINCIPAL = (
        "The KDC does not know this client",
        "Correct the principal and its realm, as in user@REALM",
        "`not found in Kerberos database while getting initial credentials`",
    )
    KERBEROS_SERVICE = (
        "The KDC does not know the brokers' service: its name or the host's is not theirs",
        "Set kafka.sasl.kerberos.service.name, or serviceName in kafka.sasl.jaas.config, to what "
        "stands before / in the brokers' principal, and connect to brokers by the host name after "
        "it",
        "`Server not found in Kerberos database`",
    )
    KERBEROS_REALM = (
        "The configuration of Kerberos on that machine does not have the realm",
        "Correct the principal's realm, or /etc/krb5.conf; another file is named by the variable "
        "KRB5_CONFIG, on the driver and with spark.executorEnv.KRB5_CONFIG: "
        "java.security.krb5.conf is Java's only",
        "`Cannot find KDC for realm`, `default realm`",
    )
    KDC_AWAY = (
        "The KDC does not answer",
        "Check that it is running, and reachable from that machine, with the kdc of /etc/krb5.conf "
        "or of the variable KRB5_CONFIG; then start the query again",
        "`Cannot contact any KDC`",
    )
    KERBEROS_CLOCK = (
        "The clocks of this machine, the KDC and the brokers differ by more than Kerberos allows, "
        "usually 5 minutes",
        "Correct the clock of this machine, or of the one that differs",
        "`Clock skew too great`",
    )
    TICKET_REJECTED = (
        "The brokers do not accept the ticket: their keytab is older than their key at the KDC, "
        "the clocks differ by more than 5 minutes, or they have another mechanism or "
        "kafka.security.protocol",
        "Look in the log of a broker; export the brokers' keytab again, or compare the clocks of "
        "this machine, the brokers and the KDC, or kafka.security.protocol with the listener's",
        "`reject the login`, with GSSAPI",
    )
    TICKET_HAS_EXPIRED = (
        "The ticket in the cache has expired, and cannot be renewed",
        "Run kinit again, as the user of that process, or use a keytab",
        "`Ticket expired`",
    )
    SASL_MODULE_IS_MISSING = (
        "The system's SASL library lacks its module for Kerberos",
        "Install libsasl2-modules-gssapi-mit (Red Hat: cyrus-sasl-gssapi) on the driver and all "
        "executors",
        "`missing a GSSAPI module`, `No worthy mechs found`, `no mechanism available`",
    )
    NO_TOKEN = (
        "The token endpoint did not give a token",
        "Correct kafka.sasl.oauthbearer.* and kafka.sasl.jaas.config, or what they need",
        "`no token for the login`",
    )
    TOKEN_IS_OPAQUE = (
        "The endpoint's token is not a JWT, so the client cannot read when it expires",
        "Set oauth.callback, a function that fetches the token, instead of "
        "kafka.sasl.oauthbearer.token.endpoint.url",
        "`Failed to decode JWT`, `Failed to parse JSON JWT`",
    )
    TOKEN_WITHOUT_EXPIRY = (
        "The token does not say when it expires",
        "Let the provider add exp, a number; or set oauth.callback, a function that fetches the "
        "token and knows when it expires, instead of kafka.sasl.oauthbearer.token.endpoint.url",
        '`with "exp" field`, `exp=0ms`',
    )
    TOKEN_WITHOUT_USER = (
        "The token does not have the claim that names its user",
        "Set kafka.sasl.oauthbearer.sub.claim.name to a claim that it has, as on the brokers; or "
        "set oauth.callback instead of kafka.sasl.oauthbearer.token.endpoint.url",
        '`with "sub" field`',
    )
    TOKEN_HAS_EXPIRED = (
        "The token has expired already",
        "Check the clocks of this machine and of the provider",
        "`Must supply an unexpired token`",
    )
    TOKEN_ENDPOINT_IS_UNAVAILABLE = (
        "The token endpoint does not answer, or with an error of its own",
        "Check that kafka.sasl.oauthbearer.token.endpoint.url is right, and reachable from the "
        "driver and all executors",
        "`no token for the login` and `Could not resolve`, `Failed to connect`, `timed out`, "
        "`it has given none within`",
    )
    TOKEN_ENDPOINT_OF_UNKNOWN_AUTHORITY = (
        "The token endpoint's certificate comes from an unknown authority, or this machine has no "
        "file of authorities",
        "Set kafka.https.ca.location to a PEM file with the authority's certificate, on the driver "
        "and all executors; or kafka.https.ca.pem to its text",
        "`error adding trust anchors`, `OpenSSL verify result`",
    )
    URL_WITHOUT_TLS = (
        "The URL begins with https://, but the port does not use TLS",
        "Correct the port in the URL, or begin it with http://",
        "`wrong version number`, `WRONG_VERSION_NUMBER`",
    )
    URL_WITH_TLS = (
        "The URL begins with http://, and the port may require TLS",
        "If the port requires TLS, begin the URL with https://; or else check that it is right and "
        "reachable",
        "`http://` and `Connection reset`, `Empty reply`, `disconnected`, `HTTPS`",
    )
    NO_TOKEN_FROM_CALLBACK = (
        "The function of oauth.callback did not give a token",
        "Correct oauth.callback or what it needs",
        "`no token for the login`, with oauth.callback",
    )
    NO_TOKEN_OF_MSK_IAM = (
        "AWS credentials are missing or not valid, or the package that signs tokens is missing",
        "On the driver and all executors, run pip install 'spark-kafka-sink[msk-iam]', and provide "
        "credentials where AWS SDKs look for them: the variables AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, a profile, or the role of the machine or container; or correct "
        "awsProfileName or awsRoleArn in kafka.sasl.jaas.config",
        "`no token for the login`, with `kafka.sasl.mechanism=AWS_MSK_IAM`",
    )

    # --- TLS -------------------------------------------------------------------------------------
    TLS_FAILED = (
        "The listener uses another protocol, or the certificates do not fit",
        "Check that kafka.security.protocol matches the listener (PLAINTEXT, SSL, SASL_PLAINTEXT "
        "or SASL_SSL), and that the port is Kafka's; or correct kafka.ssl.*",
        "`no TLS connection to`",
    )
    OPENSSL_CONFIGURATION = (
        "The configuration of OpenSSL on this machine, often for FIPS, leaves the client no cipher "
        "or key that it can use; the OpenSSL in the wheel confluent-kafka has no FIPS module",
        "On the driver and for executors (spark.executorEnv.OPENSSL_CONF), unset the environment "
        "variables OPENSSL_CONF and OPENSSL_MODULES, or let OPENSSL_CONF name a file that allows "
        "what the servers offer",
        "`library has no ciphers`, `no suitable key share`, `SSL_CTX_new() failed`",
    )
    CERTIFICATE_HAS_EXPIRED = (
        "The server's certificate, or one of its chain, has expired",
        "Renew the server's certificate, or the expired one of its chain",
        "`certificate has expired`",
    )
    CERTIFICATE_IS_NOT_YET_VALID = (
        "The clock of this machine, or of the one that issued the certificate, is wrong",
        "Check the clocks of this machine and of the one that issued the certificate",
        "`certificate is not yet valid`",
    )
    CERTIFICATE_OF_OTHER_HOST = (
        "The server's certificate is for another name",
        "Connect with a host name that the certificate contains, or issue one for this host "
        "(subjectAltName)",
        "`Hostname mismatch`, `IP address mismatch`, `no alternative certificate subject name`",
    )
    CERTIFICATE_OF_UNKNOWN_AUTHORITY = (
        "The broker's certificate comes from an unknown authority",
        "Add the certificate of the authority that signed the broker's, and those up to the root, "
        "to the store of kafka.ssl.truststore.location, or to kafka.ssl.truststore.certificates; "
        "set kafka.ssl.truststore.type=PEM if the store is a PEM file",
        "`unable to get local issuer certificate`",
    )
    CERTIFICATE_OF_ROOT_IS_MISSING = (
        "The trust store has the certificate of an intermediate authority, but not the root's, "
        "which the client requires and Java does not",
        "Add the root's certificate to the store of kafka.ssl.truststore.location, or to "
        "kafka.ssl.truststore.certificates",
        "`unable to get issuer certificate`",
    )
    CLIENT_CERTIFICATE = (
        "The brokers require a client certificate that they trust and that has not expired",
        "Set or correct kafka.ssl.keystore.*",
        "`alert certificate required`, `alert certificate expired`, `alert certificate unknown`, "
        "`alert certificate revoked`, `alert bad certificate`, `alert unknown ca`",
    )

    # --- schema registry -------------------------------------------------------------------------
    SCHEMA_NOT_FOUND = (
        "The subject does not have the schema, and the query may not register it",
        "Register the schema, or set auto.register.schemas=true. If the subject has one that "
        "differs only in its text, set normalize.schemas=true, or use.latest.version=true without "
        "value.schema or key.schema",
        "`SchemaNotFound`",
    )
    SCHEMA_INCOMPATIBLE = (
        "The schema is not compatible with the subject's earlier versions",
        "Change the column, for instance make new fields nullable; or write with the subject's own "
        "schema: give it as value.schema or key.schema, or set auto.register.schemas=false and "
        "use.latest.version=true. If only the record's name differs, set value.record.name or "
        "key.record.name. Or change the subject's compatibility level",
        "`SchemaIncompatible`",
    )
    REGISTRY_UNAVAILABLE = (
        "The schema registry does not answer in time, or with an error of its own",
        "Check that schema.registry.url is right and reachable; if the registry is only slow, "
        "raise schema.registry.request.timeout.ms",
        "`RegistryUnavailable`",
    )
    REGISTRY_OF_UNKNOWN_AUTHORITY = (
        "The certificate of the schema registry, or of its token endpoint, comes from an unknown "
        "authority",
        "Set schema.registry.ssl.ca.location to a PEM file with the authority's certificate, on "
        "the driver and all executors",
        "`CERTIFICATE_VERIFY_FAILED`",
    )
    REGISTRY_TOKEN_UNAVAILABLE = (
        "The token endpoint does not answer",
        "Check that schema.registry.bearer.auth.issuer.endpoint.url is right and reachable",
        "`no token for the login at the schema registry` (`RegistryUnavailable`)",
    )
    REGISTRY_TOKEN_REJECTED = (
        "The token endpoint rejects the client",
        "Correct schema.registry.bearer.auth.*",
        "`no token for the login at the schema registry` (`RegistryRejected`)",
    )
    REGISTRY_LOGIN_REJECTED = (
        "The user or the password is wrong, or the user lacks a right",
        "Correct schema.registry.basic.auth.user.info or schema.registry.bearer.auth.*, or grant "
        "the right to this user",
        "`RegistryRejected`, HTTP 401 or 403",
    )
    REGISTRY_IS_READ_ONLY = (
        "The subject or the registry allows no new schemas",
        "If the schema is registered already, set auto.register.schemas=false",
        "`RegistryRejected`, HTTP 422 with the registry's code 42205, HTTP 401, 403 or 405",
    )
    NO_LATEST_SCHEMA = (
        "use.latest.version=true, and the subject has no schema",
        "Register a schema for the subject, or remove use.latest.version=true: then the sink looks "
        "for its own, and registers it with auto.register.schemas=true",
        "`SchemaNotFound`, with use.latest.version",
    )
    REGISTRY_REDIRECTS = (
        "The URL leads to another one, such as a login page or the same with https://, which the "
        "client does not follow",
        "Set schema.registry.url to the registry's own URL, not one that leads elsewhere",
        "`RegistryRejected`, HTTP 301 to 308",
    )
    REGISTRY_BEHIND_PROXY = (
        "Requests to the schema registry take a proxy, which does not answer, rejects them, or "
        "does not reach the registry",
        "Correct the proxy, or let the variable NO_PROXY name the registry's host, on the driver "
        "and all executors",
        "`through the proxy of`",
    )
    REGISTRY_ANSWER_UNREADABLE = (
        "The URL answers, but not as a schema registry does",
        "Check that schema.registry.url is the URL of a registry with Confluent's API, and not of "
        "a page or a proxy; AWS Glue and Azure's registry have other APIs",
        "`not a schema registry's`",
    )
    REGISTRY_REQUEST_REJECTED = (
        "The schema is not valid, or the URL is not a schema registry's",
        "Correct the schema or schema.registry.url",
        "`RegistryRejected`, another status",
    )

    # --- exactly-once ----------------------------------------------------------------------------
    EXACTLY_ONCE_UNSUPPORTED = (
        "Exactly-once: the brokers lack transactions, or are older than Kafka 2.5: these do not "
        "hold back the offsets of open transactions, so rows could be stored twice",
        "Upgrade the brokers, or set delivery.guarantee=at-least-once",
        "`exactly-once needs Kafka 2.5`",
    )
    GROUP_AUTHORIZATION_FAILED = (
        "Exactly-once: this user may not read or commit the ledger's offsets",
        "Grant this user Read on consumer groups that begin with transactional.id.prefix",
    )
    LEDGER_TOPIC_FORBIDDEN = (
        "Exactly-once: this user may not read the ledger's topic",
        "Grant this user Read on the topic of the ledger (exactly.once.ledger.topic, by default "
        "topic)",
        "`TOPIC_AUTHORIZATION_FAILED` from the ledger",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        "Exactly-once: this user may not begin transactions",
        "Grant this user Write and Describe on transactional ids that begin with "
        "transactional.id.prefix",
    )
    REJECTED_IN_TRANSACTION = (
        "Exactly-once: the brokers rejected a record for a reason that the sink could not know "
        "before, so it ended the transaction instead of sending a dead letter",
        "Remove the cause, or filter such records in Spark; with DescribeConfigs on the topic, the "
        "sink knows its limits of size and timestamp, and whether it is compacted",
        "`instead of sending a dead letter` (`TransactionFailed`)",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        "Exactly-once: kafka.transaction.timeout.ms is more than the brokers allow "
        "(transaction.max.timeout.ms)",
        "Lower the former, or raise the latter on the brokers",
    )
    TRANSACTION_FENCED = (
        "Exactly-once: another attempt of the task has taken over its transaction",
        "This is normal if Spark repeats or speculates tasks, or if the query has just restarted. "
        "Otherwise two queries use the same transactional.id.prefix or checkpoint: stop one of "
        "them",
        "`TransactionFenced`",
    )
    INVALID_TXN_STATE = (
        "Exactly-once: the brokers cannot go on with the transaction",
        "Let Spark repeat the task: its next attempt begins a new one. If that does not help, look "
        "in the log of the transaction's coordinator",
    )
    OFFSET_METADATA_TOO_LARGE = (
        "Exactly-once: an entry of the ledger is larger than the brokers allow "
        "(offset.metadata.max.bytes)",
        "Raise that setting to Kafka's default, 4096",
    )
    TRANSACTION_TIMED_OUT = (
        "Exactly-once: the brokers abort a transaction that is open for longer than "
        "kafka.transaction.timeout.ms",
        "Raise that option, up to the brokers' transaction.max.timeout.ms, because this "
        "micro-batch runs again with the same rows; then make later ones smaller",
        "`TransactionTimeout`",
    )
    COORDINATOR_IS_LATE = (
        "Exactly-once: the coordinator of transactions or groups does not answer",
        "Check that the brokers are reachable, and that the coordinators of transactions and "
        "groups have enough replicas in sync, or raise the option that the message names; the next "
        "attempt, or the restarted query, reads from the ledger what was committed",
        "`DeadlineExceeded`, `until the time-out`",
    )

    def __init__(self, meaning: str, remedy: str, sign: str = "") -> None:
        self.meaning = meaning
        self.remedy = remedy
        self._sign = sign

    @property
    def sign(self) -> str:
        """What users see, as Markdown: names of errors, unless it is something else."""
        others = [f"`{name}`" for name in _SAME.get(self, "").split()]
        return ", ".join([self._sign or f"`{self.name}`", *others])

    def __str__(self) -> str:
        return f"{self.meaning}. {self.remedy}"


#: the same causes under further names of librdkafka's
_SAME: dict[Advice, str] = {
    Advice.INVALID_REQUEST: "INVALID_MSG_SIZE _BAD_MSG _BAD_COMPRESSION",
    Advice.UNSUPPORTED_VERSION: "_UNSUPPORTED_FEATURE",
    Advice.NOT_ENOUGH_REPLICAS: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    Advice.NOT_LEADER_FOR_PARTITION: (
        "LEADER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE BROKER_NOT_AVAILABLE NETWORK_EXCEPTION "
        "REQUEST_TIMED_OUT KAFKA_STORAGE_ERROR FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH "
        "UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID NOT_CONTROLLER REBOOTSTRAP_REQUIRED "
        "LISTENER_NOT_FOUND _TRANSPORT _TIMED_OUT _TIMED_OUT_QUEUE"
    ),
    Advice["_INCONSISTENT"]: "_GAPLESS_GUARANTEE",
    Advice.OUT_OF_ORDER_SEQUENCE_NUMBER: "UNKNOWN_PRODUCER_ID",
    Advice.INVALID_PRODUCER_EPOCH: "PRODUCER_FENCED",
    Advice.UNKNOWN_TOPIC_OR_PART: "_UNKNOWN_TOPIC",
    Advice.LOGIN_REJECTED: (
        "_AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE"
    ),
    Advice.TRANSACTION_FENCED: "_FENCED",
    Advice.INVALID_TXN_STATE: (
        "TRANSACTION_ABORTABLE CONCURRENT_TRANSACTIONS OPERATION_NOT_ATTEMPTED"
    ),
    Advice.OFFSET_METADATA_TOO_LARGE: "INVALID_COMMIT_OFFSET_SIZE",
    Advice.COORDINATOR_IS_LATE: (
        "COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS NOT_COORDINATOR _WAIT_COORD"
    ),
}
_BY_NAME = {
    **Advice.__members__,
    **{name: advice for advice, names in _SAME.items() for name in names.split()},
}

#: what the texts of the client, of TLS and of HTTP libraries contain -> the first that fits
_BY_TEXT = {
    # First: with kafka.debug, the names of OpenSSL's functions come between.
    "parse ssl.keystore.location.*unsupported": Advice.KEY_STORE_IS_TOO_OLD,
    (
        "(?i)SSL_CTX_new|NO.CIPHERS|NO.SUITABLE.|no.protocols.available|disabled for fips|"
        "inner_evp_generic_fetch|invalid provider|cipher.not.supported"
    ): Advice.OPENSSL_CONFIGURATION,
    # The first four bytes of an answer, as a number: HTTP.
    "Invalid response size 1213486160": Advice.PORT_OF_HTTP,
    "certificate has expired": Advice.CERTIFICATE_HAS_EXPIRED,
    "certificate is not yet valid": Advice.CERTIFICATE_IS_NOT_YET_VALID,
    "(Hostname|address) mismatch|no alternative certificate subject": (
        Advice.CERTIFICATE_OF_OTHER_HOST
    ),
    "unable to get issuer certificate": Advice.CERTIFICATE_OF_ROOT_IS_MISSING,
    "CERTIFICATE_VERIFY_FAILED": Advice.REGISTRY_OF_UNKNOWN_AUTHORITY,
    "adding trust anchors|OpenSSL verify result": Advice.TOKEN_ENDPOINT_OF_UNKNOWN_AUTHORITY,
    "(?i)wrong.version.number": Advice.URL_WITHOUT_TLS,
    r"http://.*(Connection reset|Empty reply|disconnected|HTTPS)": Advice.URL_WITH_TLS,
    r"login at \S+ from .*(Could not resolve|Failed to connect|timed out)": (
        Advice.TOKEN_ENDPOINT_IS_UNAVAILABLE
    ),
    "JWT (header|payload|signature)": Advice.TOKEN_IS_OPAQUE,
    'with "exp" field|exp=0ms': Advice.TOKEN_WITHOUT_EXPIRY,
    r'JWT response with "\S+" field': Advice.TOKEN_WITHOUT_USER,
    "an unexpired token": Advice.TOKEN_HAS_EXPIRED,
    "mac verify failure|keystore.password` is mandatory": Advice.KEY_STORE_PASSWORD,
    "reading ssl.keystore.location": Advice.KEY_STORE_IS_NO_PKCS12,
    r"ssl\.key\.\w+ failed": Advice.KEY_IS_UNREADABLE,
    r"ssl\.certificate\.\w+ failed": Advice.CERTIFICATE_IS_UNREADABLE,
    r"ssl\.ca\.location failed|from ssl\.ca\.pem": Advice.TRUST_STORE_IS_UNREADABLE,
}


#: what Kerberos' programs and libraries say
_BY_KERBEROS_TEXT = {
    "missing a GSSAPI module|No worthy mechs|no mechanism available": (
        Advice.SASL_MODULE_IS_MISSING
    ),
    "Server .*not found in Kerberos database|KDC has no support for|Server not found": (
        Advice.KERBEROS_SERVICE
    ),
    "not found in Kerberos database": Advice.KERBEROS_PRINCIPAL,
    "(?i)no suitable keys|pre-?authentication failed|Password incorrect": (
        Advice.KEYTAB_WITHOUT_KEY
    ),
    "Cannot find KDC|default realm|KDC reply did not match": Advice.KERBEROS_REALM,
    "Cannot contact any KDC": Advice.KDC_AWAY,
    "Clock skew": Advice.KERBEROS_CLOCK,
    "Ticket expired|ticket has expired": Advice.TICKET_HAS_EXPIRED,
}


def advice_on_kerberos(text: str) -> Advice:
    """The row of what a program or a library of Kerberos says."""
    rows = (advice for pattern, advice in _BY_KERBEROS_TEXT.items() if re.search(pattern, text))
    return next(rows, Advice.NO_TICKET)


def advice_on_text(text: str, default: Advice) -> Advice:
    """The row of a problem that has only a text."""
    rows = (advice for pattern, advice in _BY_TEXT.items() if re.search(pattern, text))
    return next(rows, default)


_BY_BROKER_ERROR = {
    r"Timed out ProduceRequest in flight": Advice.ANSWERS_ARE_LATE,
    # Without TCP, in the state CONNECT, a broker is away, or its address is dead.
    r"setup timed out in state (?!CONNECT)|ApiVersionRequest failed: Local: Timed out"
    r"|Disconnected: .*in state APIVERSION_QUERY": Advice.CONNECTIONS_ARE_LATE,
}


def advice_on_broker_error(text: str) -> Advice | None:
    """Why brokers have not done something in time, if ``text``, their latest error, says it."""
    if CERTIFICATE_ALERT.search(text):
        return Advice.CLIENT_CERTIFICATE
    rows = (advice for pattern, advice in _BY_BROKER_ERROR.items() if re.search(pattern, text))
    return next(rows, None)


#: what brokers answer to a client's certificate that they reject (TLS alerts 42, 44 to 46, 48, 116)
CERTIFICATE_ALERT = re.compile(r"alert (bad certificate|certificate \w+|unknown ca)")


def settings_rejected(text: str) -> tuple[str, str]:
    """Why a client cannot be created, and what to do."""
    if concerns_openssl(text):
        problem = f"the Kafka client cannot set up TLS: {text}{openssl_variables(text)}"
        return problem, Advice.OPENSSL_CONFIGURATION.remedy
    problem = f"the Kafka client rejects its settings: {text}{openssl_variables(text)}"
    return problem, advice_on_text(problem, Advice.SETTINGS_REJECTED).remedy


def settings_error(text: str) -> InvalidOption | LibraryUnavailable:
    """The same as an error, of the options only if these are its cause."""
    kind = LibraryUnavailable if concerns_openssl(text) else InvalidOption
    return kind(". ".join(settings_rejected(text)))


def concerns_openssl(text: str) -> bool:
    """Whether OpenSSL is configured so that it cannot do what it is asked, by whatever option."""
    return advice_on_text(text, Advice.TLS_FAILED) is Advice.OPENSSL_CONFIGURATION


def proxy_variable(url: str) -> str:
    """The variable of the environment whose proxy a request to the URL takes, or ""."""
    from urllib.request import proxy_bypass  # imports much, and most tasks have no such error

    parts = urlsplit(url)
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    set_names = {name.lower(): name for name in sorted(os.environ) if os.environ[name]}
    wanted = (f"{parts.scheme}_proxy", "all_proxy")
    return next((set_names[name] for name in wanted if name in set_names), "")


def openssl_variables(text: str) -> str:
    """What of the environment configures OpenSSL, in brackets, for an error of OpenSSL's."""
    names = ["OPENSSL_CONF", "OPENSSL_MODULES"] if re.search("SSL|error:0", text) else []
    if re.search(r"(?i)ca\.location|x509", text):
        names += ["SSL_CERT_FILE", "SSL_CERT_DIR"]
    named = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    return f" (with the environment's {', '.join(named)})" if named else ""


def advice_on(code: int) -> Advice | None:
    """The row of an error of brokers or client; None for an error of the client without one."""
    return _BY_NAME.get(error_name(code), Advice.UNKNOWN if code > 0 else None)


#: what waiting may fix
_PASSING = frozenset(
    {
        Advice.NOT_ENOUGH_REPLICAS,
        Advice.NOT_LEADER_FOR_PARTITION,
        Advice.THROTTLING_QUOTA_EXCEEDED,
        Advice.COORDINATOR_IS_LATE,
        Advice.UNKNOWN,
    }
)


def lasting_advice_on(code: int) -> Advice | None:
    """The row of an error that waiting does not fix, if it has one."""
    advice = advice_on(code)
    return None if advice in _PASSING else advice


def describe(code: int) -> str:
    """An error in librdkafka's words, with its name."""
    return f"{error_text(code)} ({error_name(code)})"


def explain(code: int, advice: Advice | None = None, note: str = "") -> str:
    """``describe``, the note, and advice: the given one, or what the table has."""
    advice = advice or advice_on(code)
    return f"{describe(code)}{note}" + (f". {advice}" if advice else "")
