//! Subjects that could cause damage or show the messages of others.

/// Identities that create and revoke previews; platform-delivery sends links in place of files.
const PREVIEW_MAKERS: &[&str] = &["command-line", "console-operator", "platform-delivery"];
/// Identities that may answer questions for people.
const QUESTION_ANSWERERS: &[&str] = &[
    "command-line",
    "console-operator",
    "mcp-approver",
    "platform-delivery",
];

/// Subjects with which an identity could cause damage, and the identities that may publish there. The list is written
/// by hand, so that the test notices when a service declares too many permissions.
pub(super) const DANGEROUS_SUBJECTS: &[(&str, &[&str])] = &[
    ("$JS.API.STREAM.DELETE.DRAY_WORK", &[]),
    ("$JS.API.STREAM.PURGE.DRAY_WORK", &[]),
    ("$JS.API.STREAM.PURGE.KV_dray_ledger", &[]),
    ("$JS.API.STREAM.UPDATE.DRAY_WORK", &["provisioner"]),
    ("$JS.API.STREAM.CREATE.DRAY_OTHER", &[]),
    ("$JS.API.STREAM.UPDATE.DRAY_OTHER", &[]),
    ("$JS.API.STREAM.MSG.DELETE.DRAY_WORK", &[]),
    ("$JS.API.STREAM.MSG.DELETE.KV_dray_ledger", &[]),
    (
        "$JS.API.STREAM.MSG.GET.DRAY_WORK",
        &["console-operator", "operator"],
    ),
    ("$JS.API.STREAM.MSG.GET.KV_dray_ledger", &[]),
    ("$JS.API.STREAM.SNAPSHOT.DRAY_WORK", &[]),
    ("$JS.API.STREAM.RESTORE.DRAY_WORK", &[]),
    ("$JS.API.STREAM.LEADER.STEPDOWN.DRAY_WORK", &[]),
    ("$JS.API.STREAM.PEER.REMOVE.DRAY_WORK", &[]),
    (
        "$JS.API.STREAM.MSG.GET.DRAY_AUDIT",
        &["console", "console-operator", "operator"],
    ),
    ("$JS.API.CONSUMER.CREATE.DRAY_WORK", &[]),
    ("$JS.API.CONSUMER.CREATE.DRAY_EVENT", &[]),
    ("$JS.API.CONSUMER.CREATE.KV_dray_sessions", &[]),
    ("$JS.API.CONSUMER.CREATE.DRAY_WORK.spy.dray.work.>", &[]),
    ("$JS.API.CONSUMER.DURABLE.CREATE.DRAY_WORK.spy", &[]),
    (
        "$JS.API.CONSUMER.CREATE.DRAY_WORK.file-resolver.dray.work.toolcall.>",
        &["provisioner"],
    ),
    (
        "$JS.API.CONSUMER.MSG.NEXT.DRAY_WORK.file-resolver",
        &["file-resolver"],
    ),
    (
        "$JS.API.CONSUMER.MSG.NEXT.DRAY_EVENT.publisher-acme",
        &["publisher-acme"],
    ),
    ("$JS.API.CONSUMER.DELETE.DRAY_WORK.file-resolver", &[]),
    (
        "$JS.API.CONSUMER.LEADER.STEPDOWN.DRAY_WORK.file-resolver",
        &[],
    ),
    ("$JS.API.META.LEADER.STEPDOWN", &[]),
    ("$JS.API.DIRECT.GET.DRAY_WORK", &[]),
    ("$JS.API.DIRECT.GET.KV_dray_ledger", &[]),
    ("$JS.API.ACCOUNT.INFO", &[]),
    ("$JS.API.SERVER.REMOVE", &[]),
    (
        "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DRAY_WORK.file-resolver",
        &[],
    ),
    ("$SYS.REQ.SERVER.PING", &[]),
    ("$KV.dray_ledger.anything", &["sweeper"]),
    (
        "dray.work.toolcall.v1.resolve.other-tenant",
        &["console-operator", "file-resolver", "operator"],
    ),
    (
        "dray.work.toolcall.v1.cancel.acme",
        &["console-operator", "operator"],
    ),
    (
        "dray.event.toolcall.v1.resolved.acme",
        &["file-resolver", "sweeper"],
    ),
    (
        "dray.event.turn.v1.begun.acme",
        &["orchestrator", "sweeper"],
    ),
    (
        "dray.event.turn.v1.ended.acme",
        &["orchestrator", "sweeper"],
    ),
    (
        "dray.event.turncall.v1.begun.acme",
        &["orchestrator", "sweeper"],
    ),
    (
        "dray.event.turncall.v1.ended.acme",
        &["orchestrator", "sweeper"],
    ),
    ("dray.event.turn.v1.dead-lettered.acme", &["sweeper"]),
    (
        "dray.dead.toolcall.v1.resolve.acme",
        &["file-resolver", "sweeper"],
    ),
    ("dray.audit.egress.v1.fetched.acme", &["egress-fetcher"]),
    (
        "dray.egress.v1.fetch",
        &[
            "command-line",
            "file-resolver",
            "mcp",
            "mcp-approver",
            "orchestrator",
            "platform-delivery",
        ],
    ),
    (
        "dray.egress.v1.explain",
        &[
            "command-line",
            "console",
            "console-operator",
            "mcp",
            "mcp-approver",
            "operator",
        ],
    ),
    ("dray.egress.v1.probe", &[]),
    ("dray.question.v1.answer", QUESTION_ANSWERERS),
    ("$KV.dray_egress_questions.anything", &["egress-fetcher"]),
    ("$KV.dray_egress_policy.anything", &["operator"]),
    (
        "$JS.API.DIRECT.GET.KV_dray_egress_policy",
        &["console", "console-operator", "egress-fetcher", "operator"],
    ),
    ("dray.approval.v1.decide-in-chat", &["platform-delivery"]),
    ("dray.file.v1.resolve.more", &[]),
    ("dray.unknown.v1.verb", &[]),
    ("dray", &[]),
    ("anything.else", &[]),
    ("$KV.dray_sessions.anything", &["sandbox-transfer"]),
    ("$KV.dray_uploads.anything", &["sandbox-transfer"]),
    ("$KV.dray_platform.anything", &["platform-delivery"]),
    ("$KV.dray_deliveries.anything", &["platform-delivery"]),
    (
        "$KV.dray_tickets.anything",
        &["mcp", "mcp-approver", "tickets"],
    ),
    (
        "dray.work.delivery-slack.v1.send.acme",
        &["console-operator", "operator", "platform-delivery"],
    ),
    (
        "dray.delivery.v1.send-file",
        &[
            "command-line",
            "console-operator",
            "mcp",
            "mcp-approver",
            "orchestrator",
            "tickets",
        ],
    ),
    ("dray.preview.v1.create", PREVIEW_MAKERS),
    ("dray.preview.v1.revoke", PREVIEW_MAKERS),
    ("dray.audit.preview.v1.changed.acme", &["sandbox-transfer"]),
    ("dray.sandbox.v1.make-directory", &["command-line"]),
    ("dray.sandbox.v1.remove", &["command-line"]),
    (
        "dray.delivery.v1.resend",
        &["command-line", "console-operator"],
    ),
    (
        "dray.audit.console.v1.acted.acme",
        &["console", "console-operator"],
    ),
    ("$JS.API.DIRECT.GET.KV_dray_sessions", &[]),
];

/// Subscriptions with which another user could read messages.
pub(super) const EAVESDROPPING_SUBJECTS: &[(&str, Option<&str>)] = &[
    (">", None),
    ("*", None),
    ("dray.>", None),
    ("dray.>", Some("egress-fetcher")),
    ("dray.egress.v1.*", None),
    ("dray.egress.v1.fetch", None),
    ("dray.egress.v1.fetch", Some("spy")),
    ("dray.file.v1.*", None),
    ("dray.file.v1.resolve", Some("spy")),
    ("dray.work.>", None),
    ("dray.work.toolcall.v1.resolve.acme", None),
    ("dray.event.>", None),
    ("dray.event.toolcall.v1.*.*", None),
    ("dray.event.toolcall.v1.*.other-tenant", None),
    ("dray.audit.>", None),
    ("dray.dead.>", None),
    ("_INBOX.>", None),
    ("_INBOX_nobody.>", None),
    ("*.any", None),
    ("$KV.>", None),
    ("$KV.dray_ledger.>", None),
    ("$JS.>", None),
    ("$JS.API.>", None),
    ("$JS.ACK.>", None),
    ("$JS.EVENT.ADVISORY.>", None),
    ("$SYS.>", None),
];
