"""[both] librdkafka's C functions for ctypes: library, constants, layouts, signatures; no logic.

The library is the one that ``confluent-kafka`` is linked with, mostly that of its wheel. Everything
used here is public API of ``rdkafka.h`` and ``rdkafka_mock.h``. ctypes releases the GIL around
every call.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from importlib.machinery import EXTENSION_SUFFIXES
from os import SEEK_END
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np

from spark_kafka_sink.errors import LibraryUnavailable
from spark_kafka_sink.libraries import NO_WINDOWS, importing

MINIMUM_VERSION = 0x020E0000  # 2.14.0
_NEWER = (
    "install the wheel of confluent-kafka 2.14 or later, or a newer librdkafka if confluent-kafka "
    "was built on this machine"
)

_PACKAGE = "confluent_kafka"
_ELF = b"\x7fELF\2\1"
# e_phoff, e_phentsize and e_phnum of an Elf64_Ehdr; p_offset and p_filesz of an Elf64_Phdr
_ELF_HEADER = Struct("<32xQ14xHH6x")
_ELF_SEGMENT = Struct("<8xQ16xQ16x")


def _load() -> ctypes.CDLL:
    # The extension is opened by path: importing the package would cost every cold worker 40 ms.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{_PACKAGE}'", name=_PACKAGE)
    for folder in map(Path, spec.submodule_search_locations or []):
        for suffix in EXTENSION_SUFFIXES:
            path = folder / f"cimpl{suffix}"
            if path.exists():
                # The loader would end the process for a file that is cut.
                for file in (path, *folder.with_name(f"{_PACKAGE}.libs").glob("*.so*")):
                    _check_length(file)
                return ctypes.CDLL(str(path))
    raise ImportError(f"it has no file cimpl{EXTENSION_SUFFIXES[0]}")


def _check_length(path: Path) -> None:
    """Raise OSError for a file that ends before its segments do (ELF of 64 bits, little endian)."""
    with path.open("rb") as file:
        header = file.read(_ELF_HEADER.size)
        if len(header) < _ELF_HEADER.size or not header.startswith(_ELF):
            return  # the loader says so
        start, size, count = _ELF_HEADER.unpack(header)
        file.seek(start)
        segments = file.read(size * count)
        length = file.seek(0, SEEK_END)
    if len(segments) < size * count or any(
        offset + stored > length for offset, stored in _ELF_SEGMENT.iter_unpack(segments)
    ):
        raise OSError(f"{path}: file too short")


with importing(_PACKAGE):
    _library = _load()

#: the C library: for the one librdkafka function that writes to a FILE, and for memory
try:
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = c_void_p
except (AttributeError, OSError, TypeError) as error:  # the last on Windows
    raise LibraryUnavailable(
        f"this system's C library lacks what the sink needs ({error}). {NO_WINDOWS}"
    ) from None
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


PTR, TEXT, INT, INT32, INT64, SIZE = c_void_p, c_char_p, c_int, c_int32, c_int64, c_size_t


def prototype(name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = getattr(_library, name)
    except AttributeError:
        raise LibraryUnavailable(f"librdkafka lacks {name}; {_NEWER}") from None
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


#: A message's opaque: the id of its send, then its position in it.
POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1

# --- Library -------------------------------------------------------------------------------------

version = prototype("rd_kafka_version", INT)
version_str = prototype("rd_kafka_version_str", TEXT)
err2name = prototype("rd_kafka_err2name", TEXT, INT)
err2str = prototype("rd_kafka_err2str", TEXT, INT)

if version() < MINIMUM_VERSION:
    raise LibraryUnavailable(
        f"librdkafka {version_str().decode()} is too old, the sink needs 2.14; {_NEWER}"
    )

# --- Configuration -------------------------------------------------------------------------------

conf_new = prototype("rd_kafka_conf_new", PTR)
conf_destroy = prototype("rd_kafka_conf_destroy", None, PTR)
conf_set = prototype("rd_kafka_conf_set", INT, PTR, TEXT, TEXT, TEXT, SIZE)
conf_get = prototype("rd_kafka_conf_get", INT, PTR, TEXT, TEXT, POINTER(SIZE))
conf_set_events = prototype("rd_kafka_conf_set_events", None, PTR, INT)
conf_properties_show = prototype("rd_kafka_conf_properties_show", None, PTR)

# --- Client, topics, queue -----------------------------------------------------------------------

new = prototype("rd_kafka_new", PTR, INT, PTR, TEXT, SIZE)
brokers_add = prototype("rd_kafka_brokers_add", INT, PTR, TEXT)
destroy_flags = prototype("rd_kafka_destroy_flags", None, PTR, INT)
topic_new = prototype("rd_kafka_topic_new", PTR, PTR, TEXT, PTR)
topic_destroy = prototype("rd_kafka_topic_destroy", None, PTR)
topic_name = prototype("rd_kafka_topic_name", TEXT, PTR)
queue_get_main = prototype("rd_kafka_queue_get_main", PTR, PTR)
queue_destroy = prototype("rd_kafka_queue_destroy", None, PTR)
queue_poll = prototype("rd_kafka_queue_poll", PTR, PTR, INT)
set_log_queue = prototype("rd_kafka_set_log_queue", INT, PTR, PTR)
fatal_error = prototype("rd_kafka_fatal_error", INT, PTR, TEXT, SIZE)

# --- Login ---------------------------------------------------------------------------------------

sasl_set_credentials = prototype("rd_kafka_sasl_set_credentials", PTR, PTR, TEXT, TEXT)
oauthbearer_set_token = prototype(
    "rd_kafka_oauthbearer_set_token", INT, PTR, TEXT, INT64, TEXT, POINTER(TEXT), SIZE, TEXT, SIZE
)
oauthbearer_set_token_failure = prototype("rd_kafka_oauthbearer_set_token_failure", INT, PTR, TEXT)

# --- Producing -----------------------------------------------------------------------------------

produce_batch = prototype("rd_kafka_produce_batch", INT, PTR, INT32, INT, PTR, INT)
produceva = prototype("rd_kafka_produceva", PTR, PTR, PTR, SIZE)
flush = prototype("rd_kafka_flush", INT, PTR, INT)
pause_partitions = prototype("rd_kafka_pause_partitions", INT, PTR, PTR)
resume_partitions = prototype("rd_kafka_resume_partitions", INT, PTR, PTR)
consume_stop = prototype("rd_kafka_consume_stop", INT, PTR, INT32)
consume = prototype("rd_kafka_consume", PTR, PTR, INT32, INT)
purge = prototype("rd_kafka_purge", INT, PTR, INT)
error_code = prototype("rd_kafka_error_code", INT, PTR)
error_string = prototype("rd_kafka_error_string", TEXT, PTR)
error_destroy = prototype("rd_kafka_error_destroy", None, PTR)

# --- Events --------------------------------------------------------------------------------------

event_type = prototype("rd_kafka_event_type", INT, PTR)
event_destroy = prototype("rd_kafka_event_destroy", None, PTR)
event_error = prototype("rd_kafka_event_error", INT, PTR)
event_stats = prototype("rd_kafka_event_stats", TEXT, PTR)
event_opaque = prototype("rd_kafka_event_opaque", PTR, PTR)
event_error_string = prototype("rd_kafka_event_error_string", TEXT, PTR)
event_message_count = prototype("rd_kafka_event_message_count", SIZE, PTR)
event_message_array = prototype("rd_kafka_event_message_array", SIZE, PTR, PTR, SIZE)
message_status = prototype("rd_kafka_message_status", INT, PTR)
event_log = prototype("rd_kafka_event_log", INT, PTR, POINTER(TEXT), POINTER(TEXT), POINTER(INT))

# --- Topic metadata (KIP-526 batches) ------------------------------------------------------------

topic_collection = prototype("rd_kafka_TopicCollection_of_topic_names", PTR, POINTER(TEXT), SIZE)
topic_collection_destroy = prototype("rd_kafka_TopicCollection_destroy", None, PTR)
admin_options_new = prototype("rd_kafka_AdminOptions_new", PTR, PTR, INT)
admin_options_set_request_timeout = prototype(
    "rd_kafka_AdminOptions_set_request_timeout", INT, PTR, INT, TEXT, SIZE
)
admin_options_set_include_authorized_operations = prototype(
    "rd_kafka_AdminOptions_set_include_authorized_operations", PTR, PTR, INT
)
admin_options_set_opaque = prototype("rd_kafka_AdminOptions_set_opaque", None, PTR, PTR)
admin_options_destroy = prototype("rd_kafka_AdminOptions_destroy", None, PTR)
describe_topics = prototype("rd_kafka_DescribeTopics", None, PTR, PTR, PTR, PTR)

describe_cluster = prototype("rd_kafka_DescribeCluster", None, PTR, PTR, PTR)
event_describe_topics_result = prototype("rd_kafka_event_DescribeTopics_result", PTR, PTR)
describe_topics_result_topics = prototype(
    "rd_kafka_DescribeTopics_result_topics", POINTER(PTR), PTR, POINTER(SIZE)
)
topic_description_name = prototype("rd_kafka_TopicDescription_name", TEXT, PTR)
topic_description_partitions = prototype(
    "rd_kafka_TopicDescription_partitions", POINTER(PTR), PTR, POINTER(SIZE)
)
topic_partition_info_partition = prototype("rd_kafka_TopicPartitionInfo_partition", INT, PTR)
topic_partition_info_leader = prototype("rd_kafka_TopicPartitionInfo_leader", PTR, PTR)
topic_partition_info_isr = prototype(
    "rd_kafka_TopicPartitionInfo_isr", POINTER(PTR), PTR, POINTER(SIZE)
)
topic_partition_info_replicas = prototype(
    "rd_kafka_TopicPartitionInfo_replicas", POINTER(PTR), PTR, POINTER(SIZE)
)
node_id = prototype("rd_kafka_Node_id", INT, PTR)
node_rack = prototype("rd_kafka_Node_rack", TEXT, PTR)
topic_description_authorized_operations = prototype(
    "rd_kafka_TopicDescription_authorized_operations", POINTER(INT), PTR, POINTER(SIZE)
)
topic_description_error = prototype("rd_kafka_TopicDescription_error", PTR, PTR)

# --- Brokers and their configuration -------------------------------------------------------------

event_describe_cluster_result = prototype("rd_kafka_event_DescribeCluster_result", PTR, PTR)
describe_cluster_result_nodes = prototype(
    "rd_kafka_DescribeCluster_result_nodes", POINTER(PTR), PTR, POINTER(SIZE)
)
describe_cluster_result_cluster_id = prototype(
    "rd_kafka_DescribeCluster_result_cluster_id", TEXT, PTR
)
describe_cluster_result_controller = prototype(
    "rd_kafka_DescribeCluster_result_controller", PTR, PTR
)
describe_cluster_result_authorized_operations = prototype(
    "rd_kafka_DescribeCluster_result_authorized_operations", POINTER(INT), PTR, POINTER(SIZE)
)
config_resource_new = prototype("rd_kafka_ConfigResource_new", PTR, INT, TEXT)
config_resource_name = prototype("rd_kafka_ConfigResource_name", TEXT, PTR)
config_resource_destroy = prototype("rd_kafka_ConfigResource_destroy", None, PTR)
describe_configs = prototype("rd_kafka_DescribeConfigs", None, PTR, POINTER(PTR), SIZE, PTR, PTR)
event_describe_configs_result = prototype("rd_kafka_event_DescribeConfigs_result", PTR, PTR)
describe_configs_result_resources = prototype(
    "rd_kafka_DescribeConfigs_result_resources", POINTER(PTR), PTR, POINTER(SIZE)
)
config_resource_error = prototype("rd_kafka_ConfigResource_error", INT, PTR)
config_resource_configs = prototype(
    "rd_kafka_ConfigResource_configs", POINTER(PTR), PTR, POINTER(SIZE)
)
config_entry_name = prototype("rd_kafka_ConfigEntry_name", TEXT, PTR)
config_entry_value = prototype("rd_kafka_ConfigEntry_value", TEXT, PTR)

# --- Transactions --------------------------------------------------------------------------------

error_is_retriable = prototype("rd_kafka_error_is_retriable", INT, PTR)
error_txn_requires_abort = prototype("rd_kafka_error_txn_requires_abort", INT, PTR)
init_transactions = prototype("rd_kafka_init_transactions", PTR, PTR, INT)
begin_transaction = prototype("rd_kafka_begin_transaction", PTR, PTR)
send_offsets_to_transaction = prototype(
    "rd_kafka_send_offsets_to_transaction", PTR, PTR, POINTER(TopicPartitionList), PTR, INT
)
commit_transaction = prototype("rd_kafka_commit_transaction", PTR, PTR, INT)
abort_transaction = prototype("rd_kafka_abort_transaction", PTR, PTR, INT)
group_metadata_new = prototype("rd_kafka_consumer_group_metadata_new", PTR, TEXT)
group_metadata_destroy = prototype("rd_kafka_consumer_group_metadata_destroy", None, PTR)

# --- Offsets of consumer groups ------------------------------------------------------------------

mem_malloc = prototype("rd_kafka_mem_malloc", PTR, PTR, SIZE)
queue_new = prototype("rd_kafka_queue_new", PTR, PTR)
partition_list_new = prototype(
    "rd_kafka_topic_partition_list_new", POINTER(TopicPartitionList), INT
)
partition_list_add = prototype(
    "rd_kafka_topic_partition_list_add",
    POINTER(TopicPartition),
    POINTER(TopicPartitionList),
    TEXT,
    INT32,
)
partition_list_destroy = prototype(
    "rd_kafka_topic_partition_list_destroy", None, POINTER(TopicPartitionList)
)
poll_set_consumer = prototype("rd_kafka_poll_set_consumer", INT, PTR)
committed = prototype("rd_kafka_committed", INT, PTR, POINTER(TopicPartitionList), INT)
commit_queue = prototype(
    "rd_kafka_commit_queue", INT, PTR, POINTER(TopicPartitionList), PTR, PTR, PTR
)


def string_array(values: Sequence[bytes]) -> Any:
    """A C array of C strings, which keeps ``values`` alive."""
    return (c_char_p * len(values))(*values)
