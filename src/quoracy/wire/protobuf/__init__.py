"""Protocol buffers: the part of proto3 that etcd's API uses, as classes with fields."""

from quoracy.wire.protobuf.fields import BOOL as BOOL
from quoracy.wire.protobuf.fields import BYTES as BYTES
from quoracy.wire.protobuf.fields import ENUM as ENUM
from quoracy.wire.protobuf.fields import INT32 as INT32
from quoracy.wire.protobuf.fields import INT64 as INT64
from quoracy.wire.protobuf.fields import MESSAGE as MESSAGE
from quoracy.wire.protobuf.fields import STRING as STRING
from quoracy.wire.protobuf.fields import UINT32 as UINT32
from quoracy.wire.protobuf.fields import UINT64 as UINT64
from quoracy.wire.protobuf.fields import Field as Field
from quoracy.wire.protobuf.fields import FieldSpec as FieldSpec
from quoracy.wire.protobuf.fields import Kind as Kind
from quoracy.wire.protobuf.fields import fields_of as fields_of
from quoracy.wire.protobuf.message import Message as Message
