//! The permission table as data, written from the specification of the bus and not from the accounts file: who may
//! publish where, and who may subscribe in which queue group.

/// One identity with everything it may do.
pub(super) struct Identity {
    pub(super) user: &'static str,
    pub(super) publish: Vec<String>,
    /// Subject and queue group.
    pub(super) subscribe: Vec<(String, Option<&'static str>)>,
}

/// Platforms that the orchestrator may queue for itself.
const PLATFORMS: [&str; 4] = ["telegram", "discord", "slack", "whatsapp"];

/// Platforms that deliveries have queues for.
const QUEUES: [&str; 8] = [
    "telegram", "discord", "slack", "whatsapp", "matrix", "email", "webhook", "cli",
];

/// All identities of the accounts file.
pub(super) fn identities() -> Vec<Identity> {
    let mut all = vec![
        orchestrator(),
        file_resolver(),
        egress_fetcher(),
        sandbox_transfer(),
        platform_delivery(),
        sweeper(),
        operator(),
        provisioner(),
    ];
    all.push(Identity {
        user: "command-line",
        publish: lines(&[
            "dray.egress.v1.fetch",
            "dray.egress.v1.cancel",
            "dray.file.v1.*",
            "dray.reading.v1.*",
            "dray.sandbox.v1.*",
            "dray.session.v1.*",
            "dray.delivery.v1.*",
        ]),
        subscribe: Vec::new(),
    });
    all.push(Identity {
        user: "publisher-acme",
        publish: lines(&["dray.work.toolcall.v1.resolve.acme"]),
        subscribe: vec![("dray.event.toolcall.v1.*.acme".to_owned(), None)],
    });
    for identity in &mut all {
        // Everybody has replies.
        identity
            .subscribe
            .push((format!("_INBOX_{}.>", identity.user), None));
    }
    all
}

fn orchestrator() -> Identity {
    let mut publish = lines(&[
        "dray.egress.v1.fetch",
        "dray.egress.v1.cancel",
        "dray.file.v1.*",
        "dray.reading.v1.*",
        "dray.sandbox.v1.*",
        "dray.session.v1.*",
        "dray.delivery.v1.*",
        "dray.work.toolcall.>",
        "dray.work.sandbox.>",
        "dray.event.session.>",
    ]);
    publish.extend(PLATFORMS.map(|platform| format!("dray.work.delivery-{platform}.>")));
    publish.extend(streams(&["DRAY_WORK", "DRAY_EVENT"]));
    publish.extend(consumer("DRAY_EVENT", "orchestrator-events"));
    publish.extend(ledger("session"));
    Identity {
        user: "orchestrator",
        publish,
        subscribe: answers("orchestrator", "orchestrator"),
    }
}

fn file_resolver() -> Identity {
    let mut publish = lines(&[
        "dray.egress.v1.fetch",
        "dray.egress.v1.cancel",
        "dray.sandbox.v1.get",
        "dray.sandbox.v1.put",
        "dray.sandbox.v1.stat",
        "dray.sandbox.v1.cancel",
        "dray.event.toolcall.>",
        "dray.event.file.>",
        "dray.dead.toolcall.>",
        // Not in the table: what arrives over gRPC becomes work here.
        "dray.work.toolcall.v1.resolve.*",
    ]);
    publish.extend(streams(&["DRAY_WORK", "DRAY_EVENT", "DRAY_DEAD"]));
    publish.extend(consumer("DRAY_WORK", "file-resolver"));
    publish.extend(ledger("file"));
    publish.extend(ledger("toolcall"));
    publish.extend(lines(&[
        "$JS.API.STREAM.INFO.KV_dray_conversions",
        "$KV.dray_conversions.>",
        "$JS.API.DIRECT.GET.KV_dray_conversions.$KV.dray_conversions.>",
    ]));
    let mut subscribe = answers("file", "file-resolver");
    subscribe.extend(answers("reading", "file-resolver"));
    Identity {
        user: "file-resolver",
        publish,
        subscribe,
    }
}

fn egress_fetcher() -> Identity {
    let mut publish = lines(&["dray.event.egress.>", "dray.audit.egress.>"]);
    publish.extend(streams(&["DRAY_EVENT", "DRAY_AUDIT"]));
    publish.extend(ledger("egress"));
    Identity {
        user: "egress-fetcher",
        publish,
        subscribe: answers("egress", "egress-fetcher"),
    }
}

fn sandbox_transfer() -> Identity {
    let mut publish = lines(&["dray.event.sandbox.>", "dray.dead.sandbox.>"]);
    publish.extend(streams(&["DRAY_WORK", "DRAY_EVENT", "DRAY_DEAD"]));
    publish.extend(consumer("DRAY_WORK", "sandbox-transfer"));
    publish.extend(ledger("sandbox"));
    Identity {
        user: "sandbox-transfer",
        publish,
        subscribe: answers("sandbox", "sandbox-transfer"),
    }
}

fn platform_delivery() -> Identity {
    let mut publish = lines(&[
        "dray.session.v1.show",
        "dray.session.v1.find",
        "dray.session.v1.cancel",
        "dray.sandbox.v1.get",
        "dray.sandbox.v1.get-tree",
        "dray.sandbox.v1.stat",
        "dray.sandbox.v1.put",
        "dray.sandbox.v1.cancel",
        "dray.work.delivery.>",
        "dray.work.inbound.>",
        // What a user sent goes on its way into the sandbox.
        "dray.work.sandbox.v1.place.*",
        "dray.event.delivery.>",
        "dray.event.inbound.>",
        "dray.audit.delivery.>",
        "dray.dead.delivery.>",
        "dray.dead.inbound.>",
        // Its own records, and finding them again without a consumer.
        "$KV.dray_deliveries.>",
        "$JS.API.DIRECT.GET.KV_dray_deliveries",
        "$JS.API.DIRECT.GET.KV_dray_deliveries.$KV.dray_deliveries.>",
        "$KV.dray_platform.>",
        "$JS.API.DIRECT.GET.KV_dray_platform.$KV.dray_platform.>",
    ]);
    publish.extend(streams(&[
        "DRAY_WORK",
        "DRAY_EVENT",
        "DRAY_DEAD",
        "DRAY_AUDIT",
        "KV_dray_sessions",
        "KV_dray_deliveries",
        "KV_dray_platform",
    ]));
    for durable in ["platform-delivery", "inbound"] {
        publish.extend(consumer("DRAY_WORK", durable));
    }
    publish.extend(ledger("delivery"));
    publish.extend(ledger("inbound"));
    for platform in QUEUES {
        publish.push(format!("dray.work.delivery-{platform}.>"));
        publish.push(format!("dray.dead.delivery-{platform}.>"));
        publish.extend(consumer(
            "DRAY_WORK",
            &format!("platform-delivery-{platform}"),
        ));
        publish.extend(ledger(&format!("delivery-{platform}")));
    }
    Identity {
        user: "platform-delivery",
        publish,
        subscribe: answers("delivery", "platform-delivery"),
    }
}

fn sweeper() -> Identity {
    let mut publish = lines(&[
        "dray.dead.>",
        "dray.event.>",
        // Consumers of its own on the ledger.
        "$JS.API.CONSUMER.CREATE.KV_dray_ledger",
        "$JS.API.CONSUMER.CREATE.KV_dray_ledger.>",
        "$JS.API.CONSUMER.INFO.KV_dray_ledger.*",
        "$JS.API.CONSUMER.MSG.NEXT.KV_dray_ledger.*",
        "$JS.ACK.KV_dray_ledger.>",
        // Every area is its own.
        "$KV.dray_ledger.>",
        "$JS.API.DIRECT.GET.KV_dray_ledger.$KV.dray_ledger.>",
    ]);
    publish.extend(streams(&[
        "DRAY_WORK",
        "DRAY_EVENT",
        "DRAY_DEAD",
        "DRAY_ADVISORY",
    ]));
    publish.extend(consumer("DRAY_WORK", "sweeper-work"));
    publish.extend(consumer("DRAY_ADVISORY", "sweeper-advisory"));
    Identity {
        user: "sweeper",
        publish,
        subscribe: Vec::new(),
    }
}

/// Not in the table: whoever looks at the bus from a terminal.
fn operator() -> Identity {
    let mut publish = lines(&[
        "dray.work.>",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.CONSUMER.INFO.>",
        "$JS.API.STREAM.MSG.GET.DRAY_DEAD",
        "$JS.API.STREAM.MSG.GET.DRAY_WORK",
        "$JS.API.DIRECT.GET.KV_dray_ledger.$KV.dray_ledger.>",
    ]);
    for stream in ["DRAY_WORK", "DRAY_EVENT", "DRAY_DEAD", "DRAY_AUDIT"] {
        // Passing ones only: with a name in the subject it could change a durable.
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}"));
        publish.push(format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.*"));
    }
    Identity {
        user: "operator",
        publish,
        subscribe: Vec::new(),
    }
}

fn provisioner() -> Identity {
    Identity {
        user: "provisioner",
        publish: lines(&[
            "$JS.API.INFO",
            "$JS.API.STREAM.NAMES",
            "$JS.API.STREAM.LIST",
            "$JS.API.STREAM.CREATE.*",
            "$JS.API.STREAM.UPDATE.*",
            "$JS.API.STREAM.INFO.*",
            "$JS.API.CONSUMER.NAMES.*",
            "$JS.API.CONSUMER.LIST.*",
            "$JS.API.CONSUMER.CREATE.>",
            "$JS.API.CONSUMER.DURABLE.CREATE.>",
            "$JS.API.CONSUMER.INFO.>",
        ]),
        subscribe: Vec::new(),
    }
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

/// Answering the calls of an area in a queue group, and hearing of cancelled ones without.
fn answers(area: &str, service: &'static str) -> Vec<(String, Option<&'static str>)> {
    vec![
        (format!("dray.{area}.v1.*"), Some(service)),
        (format!("dray.{area}.v1.cancel"), None),
    ]
}

/// Looking at the streams it uses, the ledger's among them.
fn streams(names: &[&str]) -> Vec<String> {
    names
        .iter()
        .chain(&["KV_dray_ledger"])
        .map(|name| format!("$JS.API.STREAM.INFO.{name}"))
        .collect()
}

/// Pulling from and acknowledging to one durable.
fn consumer(stream: &str, durable: &str) -> [String; 3] {
    [
        format!("$JS.API.CONSUMER.INFO.{stream}.{durable}"),
        format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"),
        format!("$JS.ACK.{stream}.{durable}.>"),
    ]
}

/// Writing and reading one area of the ledger.
fn ledger(area: &str) -> [String; 2] {
    [
        format!("$KV.dray_ledger.{area}.>"),
        format!("$JS.API.DIRECT.GET.KV_dray_ledger.$KV.dray_ledger.{area}.>"),
    ]
}

/// Whether a pattern admits a subject without wildcards.
pub(super) fn admits(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for token in pattern.split('.') {
        match (token, subject.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (token, Some(word)) if token == word => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

/// A subject that a pattern admits.
pub(super) fn example(pattern: &str) -> String {
    pattern
        .split('.')
        .map(|token| match token {
            "*" => "any",
            ">" => "any.thing",
            token => token,
        })
        .collect::<Vec<_>>()
        .join(".")
}
