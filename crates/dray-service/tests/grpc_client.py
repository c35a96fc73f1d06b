"""A gRPC client without knowledge of the contracts: it finds them by reflection, calls, and prints the responses.

usage: grpc_client.py ADDRESS URL
"""

import json
import sys

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def main():
    address, url = sys.argv[1:]
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for state in health.Watch(health_pb2.HealthCheckRequest(service="dray.v1.Egress"), timeout=20):
            if state.status == health_pb2.HealthCheckResponse.SERVING:
                break
        database = ProtoReflectionDescriptorDatabase(channel)
        method = DescriptorPool(database).FindMethodByName("dray.v1.Egress.Fetch")
        request = message_factory.GetMessageClass(method.input_type)
        reply = message_factory.GetMessageClass(method.output_type)
        fetch = channel.unary_unary(
            "/dray.v1.Egress/Fetch",
            request_serializer=request.SerializeToString,
            response_deserializer=reply.FromString,
        )
        try:
            answer = fetch(request(url=url), timeout=10, metadata=[("dray-tenant", "acme")])
            print(json.dumps({"name": answer.name, "services": sorted(database.get_services())}))
        except grpc.RpcError as error:
            details = dict(error.trailing_metadata())["grpc-status-details-bin"]
            print(json.dumps({"code": error.code().name, "message": error.details(), "details": details.hex()}))


main()
