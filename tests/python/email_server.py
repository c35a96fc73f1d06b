"""A mail server of aiosmtpd: email_server.py USER PASSWORD. Prints its port, then each parsed mail."""

import hashlib
import json
import sys
from email import message_from_bytes, policy

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

USER, PASSWORD = sys.argv[1].encode(), sys.argv[2].encode()


def show(value):
    print(json.dumps(value), flush=True)


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = message_from_bytes(envelope.content, policy=policy.default)
        body = mail.get_body(("plain",))
        files = []
        defects = len(mail.defects)
        for part in mail.iter_attachments():
            defects += len(part.defects)
            content = part.get_payload(decode=True)
            digest = hashlib.sha256(content).hexdigest()
            files.append([part.get_filename(), part.get_content_type(), digest])
        show(
            {
                "from": envelope.mail_from,
                "to": envelope.rcpt_tos,
                "sender": str(mail["From"]),
                "subject": str(mail["Subject"]),
                "id": mail["Message-ID"].strip(),
                "references": mail["References"].strip(),
                "text": body.get_content().replace("\r\n", "\n").rstrip("\n"),
                "defects": defects,
                "files": files,
            }
        )
        return "250 2.0.0 kept"


def authenticate(server, session, envelope, mechanism, data):
    is_valid = data.login == USER and data.password == PASSWORD
    return AuthResult(success=is_valid, handled=False)


controller = Controller(
    Handler(),
    hostname="127.0.0.1",
    port=0,
    ready_timeout=30,
    data_size_limit=2_000_000,
    authenticator=authenticate,
    auth_required=True,
    auth_require_tls=False,
)


# The controller connects to its port during the start, so the port must be chosen before.
def start():
    import socket

    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    controller.port = probe.getsockname()[1]
    probe.close()
    controller.start()


start()
show(controller.port)
sys.stdin.read()
controller.stop()
