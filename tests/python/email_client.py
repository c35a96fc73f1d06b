"""Checks the fake submission server with smtplib: email_client.py PORT USER PASSWORD UNKNOWN_RECIPIENT."""

import json
import smtplib
import sys
from email.message import EmailMessage

PORT, USER, PASSWORD, UNKNOWN_RECIPIENT = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
SENDER, TO = "bot@example.org", "ada@example.org"


def message(text):
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = SENDER, TO, "A report"
    mail["Date"] = "Tue, 14 Nov 2023 22:13:20 +0000"
    mail["Message-ID"] = "<one@example.org>"
    mail.set_content(text, cte="base64" if not text.isascii() else "7bit")
    return mail


def connect(login=True):
    server = smtplib.SMTP("127.0.0.1", PORT, timeout=30)
    if login:
        server.login(USER, PASSWORD)
    return server


def code(act):
    try:
        act()
    except smtplib.SMTPRecipientsRefused as refused:
        return next(iter(refused.recipients.values()))[0]
    except smtplib.SMTPResponseException as refused:
        return refused.smtp_code
    return 250


def main():
    report = {}
    server = connect(login=False)
    server.ehlo()
    report["size"] = server.esmtp_features["size"]
    report["auth"] = server.esmtp_features["auth"].strip()
    report["without_login"] = code(lambda: server.send_message(message("x")))
    report["wrong_password"] = code(lambda: server.login(USER, "wrong"))
    server.close()

    server = connect()
    report["nobody"] = code(lambda: server.sendmail(SENDER, [UNKNOWN_RECIPIENT], "Subject: x\n\nx"))
    large = "Subject: x\n\n" + "x" * (1 << 20)
    report["too_large"] = code(lambda: server.sendmail(SENDER, [TO], large))
    report["blocked"] = code(lambda: server.send_message(message("x")))
    report["later"] = code(lambda: server.send_message(message("x")))
    server.rset()
    report["no_recipient"] = code(lambda: server.data(b"x"))
    server.rset()
    server.send_message(message("first\n.second\n"))
    server.quit()

    server = connect(login=False)
    server.ehlo()
    server.user, server.password = USER, PASSWORD
    server.auth("LOGIN", server.auth_login)
    report["login"] = "LOGIN"
    mail = message("Вот он.\n")
    mail.add_attachment(b"a,b\n", maintype="text", subtype="csv", filename="отчёт.csv")
    data = bytes(range(256)) * 300
    mail.add_attachment(data, maintype="application", subtype="octet-stream", filename='a "b".bin')
    server.send_message(mail)
    server.quit()
    print(json.dumps(report))


main()
