"""Loads the descriptors of the contracts into a separate pool, where other copies of `dray/v1` cause no conflict."""

from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper


class Contracts:
    """The messages and enums of one descriptor set."""

    def __init__(self, descriptors: bytes) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        # A file comes after those that it imports.
        for file in FileDescriptorSet.FromString(descriptors).file:
            self._pool.AddSerializedFile(file.SerializeToString())

    def message(self, name: str) -> Any:
        """The class of the message with this full name."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def enum(self, name: str) -> Any:
        """The enum with this full name."""
        return EnumTypeWrapper(self._pool.FindEnumTypeByName(name))
