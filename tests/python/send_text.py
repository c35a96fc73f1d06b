"""Sends an agent's final text over gRPC, with mentioned files and remote pictures, and prints the reply as JSON.

Arguments: address of the endpoint, session, text.
"""

import json
import sys

from drayage import Dray, methods, v1


def main():
    target, session, text = sys.argv[1:]
    request = v1.SendTextRequested(session=session, text=text, mentioned_files=True, remote_images=True)
    with Dray(target, tenant="default", plaintext=True) as dray:
        reply = dray.call(methods.DELIVERIES_SEND_TEXT, request)
    fields = {"text": reply.text, "delivery_id": reply.delivery_id, "image_notices": list(reply.image_notices)}
    print(json.dumps(fields))


main()
