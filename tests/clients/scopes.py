"""Calls every method of the contracts with its own scope, with another one and without a token.

The variable DRAYAGE_SCENARIO is JSON: target, ca (PEM file), and methods, each with its path, the token of an identity that has
its scope alone, and whether it streams its reply. Prints the number of methods; fails with an exception.
"""

import json
import os

import grpc

from drayage._transport import error_of

SCENARIO = json.loads(os.environ["DRAYAGE_SCENARIO"])
METHODS = SCENARIO["methods"]
# A refusal comes before the method begins, so only a stalled machine needs this long.
REFUSAL_SECONDS = 60
# A method that begins may wait for an outcome.
CALL_SECONDS = 5


def fault_of(channel, method, token, seconds=REFUSAL_SECONDS):
    """The fault of an empty request; `None` if it succeeds."""
    connect = channel.unary_stream if method["streams"] else channel.unary_unary
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        reply = connect(method["path"])(b"", timeout=seconds, metadata=metadata)
        if method["streams"]:
            for _ in reply:
                pass
    except grpc.RpcError as error:
        return error.code(), error_of(error).fault.detail
    return grpc.StatusCode.OK, ""


def main():
    with open(SCENARIO["ca"], "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    options = [("grpc.ssl_target_name_override", "localhost")]
    with grpc.secure_channel(SCENARIO["target"], credentials, options) as channel:
        for number, method in enumerate(METHODS):
            path = method["path"]
            other = METHODS[number - 1]["token"]
            found = fault_of(channel, method, None)
            assert found == (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated"), (path, found)
            found = fault_of(channel, method, other)
            assert found == (grpc.StatusCode.PERMISSION_DENIED, "missing_scope"), (path, found)
            code, detail = fault_of(channel, method, method["token"], CALL_SECONDS)
            assert code != grpc.StatusCode.UNAUTHENTICATED, (path, detail)
            # `unimplemented` is the detail of an endpoint without the method.
            assert detail not in ("missing_scope", "unimplemented"), (path, code, detail)
    print(len(METHODS))


main()
