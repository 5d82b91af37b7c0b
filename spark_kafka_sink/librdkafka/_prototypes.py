"""librdkafka's C functions as ctypes prototypes: library, constants, layouts, signatures; no logic.

The library is the one inside the wheel ``confluent-kafka``; everything used here is public API of
``rdkafka.h`` and ``rdkafka_mock.h``. ctypes releases the GIL around every call.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np

from spark_kafka_sink.errors import LibraryUnavailable

MINIMUM_VERSION = 0x020E0000  # 2.14.0


def _load() -> ctypes.CDLL:
    # The extension is opened by path: importing the package would cost every cold worker 40 ms.
    spec = importlib.util.find_spec("confluent_kafka")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for suffix in EXTENSION_SUFFIXES:
            path = Path(folder) / f"cimpl{suffix}"
            if path.exists():
                return ctypes.CDLL(str(path))
    raise LibraryUnavailable(
        "the package confluent-kafka, which contains librdkafka, is not installed in this Python; "
        "on a cluster it must be installed on the driver and on every executor"
    )


_library = _load()

#: the C library: for the one librdkafka function that writes to a FILE, and for memory
libc = ctypes.CDLL(None)
libc.open_memstream.restype = c_void_p
libc.open_memstream.argtypes = [c_void_p, c_void_p]
libc.fclose.argtypes = [c_void_p]
libc.free.argtypes = [c_void_p]
libc.free.restype = None
#: None in C libraries other than glibc
malloc_trim = getattr(libc, "malloc_trim", None)
if malloc_trim is not None:
    malloc_trim.argtypes = [c_size_t]
mallopt = getattr(libc, "mallopt", None)
if mallopt is not None:
    mallopt.argtypes = [c_int, c_int]


def prototype(name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = getattr(_library, name)
    except AttributeError:
        raise LibraryUnavailable(
            f"librdkafka lacks {name}; install confluent-kafka 2.14 or later"
        ) from None
    function.argtypes = list(arguments)
    function.restype = result
    return function


# --- Constants -----------------------------------------------------------------------------------

CONF_OK = 0
PRODUCER = 0
CONSUMER = 1
DESTROY_F_NO_CONSUMER_CLOSE = 0x8
PURGE_F_QUEUE = 0x1
PURGE_F_INFLIGHT = 0x2
PURGE_F_NON_BLOCKING = 0x4
EVENT_DR = 0x1
EVENT_LOG = 0x4
EVENT_ERROR = 0x8
EVENT_STATS = 0x40
EVENT_OAUTHBEARER_TOKEN_REFRESH = 0x100
EVENT_DESCRIBECONFIGS_RESULT = 104
EVENT_DESCRIBETOPICS_RESULT = 0x100000
EVENT_DESCRIBECLUSTER_RESULT = 0x200000
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
ADMIN_OP_DESCRIBECONFIGS = 5
ADMIN_OP_DESCRIBETOPICS = 19
ADMIN_OP_DESCRIBECLUSTER = 20
ACL_OPERATION_WRITE = 4
MSG_STATUS_NOT_PERSISTED = 0
#: RD_KAFKA_OFFSET_INVALID
OFFSET_INVALID = -1001

VTYPE_RKT = 2
VTYPE_PARTITION = 3
VTYPE_VALUE = 4
VTYPE_KEY = 5
VTYPE_OPAQUE = 6
VTYPE_TIMESTAMP = 8
VTYPE_HEADER = 9

# --- Layouts -------------------------------------------------------------------------------------

#: rd_kafka_message_t
MESSAGE = np.dtype(
    {
        "names": [
            "err",
            "rkt",
            "partition",
            "payload",
            "len",
            "key",
            "key_len",
            "offset",
            "opaque",
        ],
        "formats": ["i4", "u8", "i4", "u8", "u8", "u8", "u8", "i8", "i8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
        "itemsize": 72,
    }
)

#: rd_kafka_vu_t: the union starts at byte 8. ``number`` is every integer and pointer member,
#: ``size`` the second word of ``mem``, ``header_size`` the third word of ``header``.
VU = np.dtype(
    {
        "names": ["vtype", "number", "size", "header_size"],
        "formats": ["i4", "i8", "i8", "i8"],
        "offsets": [0, 8, 16, 24],
        "itemsize": 72,
    }
)


class TopicPartition(Structure):
    """rd_kafka_topic_partition_t"""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("_private", c_void_p),
    )


class TopicPartitionList(Structure):
    """rd_kafka_topic_partition_list_t"""

    _fields_ = (("cnt", c_int), ("size", c_int), ("elems", POINTER(TopicPartition)))


#: A message's opaque: the id of its delivery, then its position in the send.
POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1

# --- Library -------------------------------------------------------------------------------------

version = prototype("rd_kafka_version", c_int)
version_str = prototype("rd_kafka_version_str", c_char_p)
err2name = prototype("rd_kafka_err2name", c_char_p, c_int)
err2str = prototype("rd_kafka_err2str", c_char_p, c_int)

if version() < MINIMUM_VERSION:
    raise LibraryUnavailable(
        f"librdkafka {version_str().decode()} is too old; install confluent-kafka 2.14 or later"
    )

# --- Configuration -------------------------------------------------------------------------------

conf_new = prototype("rd_kafka_conf_new", c_void_p)
conf_destroy = prototype("rd_kafka_conf_destroy", None, c_void_p)
conf_set = prototype("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
conf_set_events = prototype("rd_kafka_conf_set_events", None, c_void_p, c_int)
conf_properties_show = prototype("rd_kafka_conf_properties_show", None, c_void_p)

# --- Client, topics, queue -----------------------------------------------------------------------

new = prototype("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
brokers_add = prototype("rd_kafka_brokers_add", c_int, c_void_p, c_char_p)
destroy_flags = prototype("rd_kafka_destroy_flags", None, c_void_p, c_int)
topic_new = prototype("rd_kafka_topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
topic_destroy = prototype("rd_kafka_topic_destroy", None, c_void_p)
topic_name = prototype("rd_kafka_topic_name", c_char_p, c_void_p)
queue_get_main = prototype("rd_kafka_queue_get_main", c_void_p, c_void_p)
queue_destroy = prototype("rd_kafka_queue_destroy", None, c_void_p)
queue_poll = prototype("rd_kafka_queue_poll", c_void_p, c_void_p, c_int)
set_log_queue = prototype("rd_kafka_set_log_queue", c_int, c_void_p, c_void_p)
fatal_error = prototype("rd_kafka_fatal_error", c_int, c_void_p, c_char_p, c_size_t)

# --- Login ---------------------------------------------------------------------------------------

oauthbearer_set_token = prototype(
    "rd_kafka_oauthbearer_set_token",
    c_int, c_void_p, c_char_p, c_int64, c_char_p, POINTER(c_char_p), c_size_t, c_char_p, c_size_t,
)  # fmt: skip
oauthbearer_set_token_failure = prototype(
    "rd_kafka_oauthbearer_set_token_failure", c_int, c_void_p, c_char_p
)

# --- Producing -----------------------------------------------------------------------------------

produce_batch = prototype(
    "rd_kafka_produce_batch", c_int, c_void_p, c_int32, c_int, c_void_p, c_int
)
produceva = prototype("rd_kafka_produceva", c_void_p, c_void_p, c_void_p, c_size_t)
flush = prototype("rd_kafka_flush", c_int, c_void_p, c_int)
pause_partitions = prototype("rd_kafka_pause_partitions", c_int, c_void_p, c_void_p)
resume_partitions = prototype("rd_kafka_resume_partitions", c_int, c_void_p, c_void_p)
consume_stop = prototype("rd_kafka_consume_stop", c_int, c_void_p, c_int32)
consume = prototype("rd_kafka_consume", c_void_p, c_void_p, c_int32, c_int)
purge = prototype("rd_kafka_purge", c_int, c_void_p, c_int)
error_code = prototype("rd_kafka_error_code", c_int, c_void_p)
error_string = prototype("rd_kafka_error_string", c_char_p, c_void_p)
error_destroy = prototype("rd_kafka_error_destroy", None, c_void_p)

# --- Events --------------------------------------------------------------------------------------

event_type = prototype("rd_kafka_event_type", c_int, c_void_p)
event_destroy = prototype("rd_kafka_event_destroy", None, c_void_p)
event_error = prototype("rd_kafka_event_error", c_int, c_void_p)
event_stats = prototype("rd_kafka_event_stats", c_char_p, c_void_p)
event_opaque = prototype("rd_kafka_event_opaque", c_void_p, c_void_p)
event_error_string = prototype("rd_kafka_event_error_string", c_char_p, c_void_p)
event_message_count = prototype("rd_kafka_event_message_count", c_size_t, c_void_p)
event_message_array = prototype(
    "rd_kafka_event_message_array", c_size_t, c_void_p, c_void_p, c_size_t
)
message_status = prototype("rd_kafka_message_status", c_int, c_void_p)
event_log = prototype(
    "rd_kafka_event_log", c_int, c_void_p, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_int)
)

# --- Topic metadata (KIP-526 batches) ------------------------------------------------------------

topic_collection = prototype(
    "rd_kafka_TopicCollection_of_topic_names", c_void_p, POINTER(c_char_p), c_size_t
)
topic_collection_destroy = prototype("rd_kafka_TopicCollection_destroy", None, c_void_p)
admin_options_new = prototype("rd_kafka_AdminOptions_new", c_void_p, c_void_p, c_int)
admin_options_set_request_timeout = prototype(
    "rd_kafka_AdminOptions_set_request_timeout", c_int, c_void_p, c_int, c_char_p, c_size_t
)
admin_options_set_include_authorized_operations = prototype(
    "rd_kafka_AdminOptions_set_include_authorized_operations", c_void_p, c_void_p, c_int
)
admin_options_set_opaque = prototype("rd_kafka_AdminOptions_set_opaque", None, c_void_p, c_void_p)
admin_options_destroy = prototype("rd_kafka_AdminOptions_destroy", None, c_void_p)
describe_topics = prototype("rd_kafka_DescribeTopics", None, c_void_p, c_void_p, c_void_p, c_void_p)

describe_cluster = prototype("rd_kafka_DescribeCluster", None, c_void_p, c_void_p, c_void_p)
event_describe_topics_result = prototype("rd_kafka_event_DescribeTopics_result", c_void_p, c_void_p)
describe_topics_result_topics = prototype(
    "rd_kafka_DescribeTopics_result_topics", POINTER(c_void_p), c_void_p, POINTER(c_size_t)
)
topic_description_name = prototype("rd_kafka_TopicDescription_name", c_char_p, c_void_p)
topic_description_partitions = prototype(
    "rd_kafka_TopicDescription_partitions", POINTER(c_void_p), c_void_p, POINTER(c_size_t)
)
topic_partition_info_partition = prototype("rd_kafka_TopicPartitionInfo_partition", c_int, c_void_p)
topic_partition_info_leader = prototype("rd_kafka_TopicPartitionInfo_leader", c_void_p, c_void_p)
node_id = prototype("rd_kafka_Node_id", c_int, c_void_p)
node_rack = prototype("rd_kafka_Node_rack", c_char_p, c_void_p)
topic_description_authorized_operations = prototype(
    "rd_kafka_TopicDescription_authorized_operations",
    POINTER(c_int), c_void_p, POINTER(c_size_t),
)  # fmt: skip
topic_description_error = prototype("rd_kafka_TopicDescription_error", c_void_p, c_void_p)

# --- Brokers and their configuration -------------------------------------------------------------

event_describe_cluster_result = prototype(
    "rd_kafka_event_DescribeCluster_result", c_void_p, c_void_p
)
describe_cluster_result_nodes = prototype(
    "rd_kafka_DescribeCluster_result_nodes", POINTER(c_void_p), c_void_p, POINTER(c_size_t)
)
config_resource_new = prototype("rd_kafka_ConfigResource_new", c_void_p, c_int, c_char_p)
config_resource_name = prototype("rd_kafka_ConfigResource_name", c_char_p, c_void_p)
config_resource_destroy = prototype("rd_kafka_ConfigResource_destroy", None, c_void_p)
describe_configs = prototype(
    "rd_kafka_DescribeConfigs",
    None, c_void_p, POINTER(c_void_p), c_size_t, c_void_p, c_void_p,
)  # fmt: skip
event_describe_configs_result = prototype(
    "rd_kafka_event_DescribeConfigs_result", c_void_p, c_void_p
)
describe_configs_result_resources = prototype(
    "rd_kafka_DescribeConfigs_result_resources", POINTER(c_void_p), c_void_p, POINTER(c_size_t)
)
config_resource_error = prototype("rd_kafka_ConfigResource_error", c_int, c_void_p)
config_resource_configs = prototype(
    "rd_kafka_ConfigResource_configs", POINTER(c_void_p), c_void_p, POINTER(c_size_t)
)
config_entry_name = prototype("rd_kafka_ConfigEntry_name", c_char_p, c_void_p)
config_entry_value = prototype("rd_kafka_ConfigEntry_value", c_char_p, c_void_p)

# --- Transactions --------------------------------------------------------------------------------

error_is_retriable = prototype("rd_kafka_error_is_retriable", c_int, c_void_p)
error_txn_requires_abort = prototype("rd_kafka_error_txn_requires_abort", c_int, c_void_p)
init_transactions = prototype("rd_kafka_init_transactions", c_void_p, c_void_p, c_int)
begin_transaction = prototype("rd_kafka_begin_transaction", c_void_p, c_void_p)
send_offsets_to_transaction = prototype(
    "rd_kafka_send_offsets_to_transaction",
    c_void_p, c_void_p, POINTER(TopicPartitionList), c_void_p, c_int,
)  # fmt: skip
commit_transaction = prototype("rd_kafka_commit_transaction", c_void_p, c_void_p, c_int)
abort_transaction = prototype("rd_kafka_abort_transaction", c_void_p, c_void_p, c_int)
group_metadata_new = prototype("rd_kafka_consumer_group_metadata_new", c_void_p, c_char_p)
group_metadata_destroy = prototype("rd_kafka_consumer_group_metadata_destroy", None, c_void_p)

# --- Offsets of consumer groups ------------------------------------------------------------------

mem_malloc = prototype("rd_kafka_mem_malloc", c_void_p, c_void_p, c_size_t)
queue_new = prototype("rd_kafka_queue_new", c_void_p, c_void_p)
partition_list_new = prototype(
    "rd_kafka_topic_partition_list_new", POINTER(TopicPartitionList), c_int
)
partition_list_add = prototype(
    "rd_kafka_topic_partition_list_add",
    POINTER(TopicPartition), POINTER(TopicPartitionList), c_char_p, c_int32,
)  # fmt: skip
partition_list_destroy = prototype(
    "rd_kafka_topic_partition_list_destroy", None, POINTER(TopicPartitionList)
)
poll_set_consumer = prototype("rd_kafka_poll_set_consumer", c_int, c_void_p)
committed = prototype("rd_kafka_committed", c_int, c_void_p, POINTER(TopicPartitionList), c_int)
commit_queue = prototype(
    "rd_kafka_commit_queue",
    c_int, c_void_p, POINTER(TopicPartitionList), c_void_p, c_void_p, c_void_p,
)  # fmt: skip


def string_array(values: Sequence[bytes]) -> Any:
    """A C array of C strings, which keeps ``values`` alive."""
    return (c_char_p * len(values))(*values)
