//! Tests of the accounts file on a real server: every permission works, and everything else is refused, for every
//! identity (messaging-reliability 18 and 19.12).

use serde_json::{Value, json};

use self::dangerous::{DANGEROUS_SUBJECTS, EAVESDROPPING_SUBJECTS};
use self::server::AccountsServer;
use self::table::{AccountIdentity, admits, example, identities};
use self::wire::WireClient;

mod dangerous;
mod product;
mod replies;
mod runbooks;
pub(super) mod server;
mod table;
mod wire;

/// Every subject on which each identity tries to publish.
fn subjects(identities: &[AccountIdentity]) -> Vec<String> {
    let mut subjects: Vec<String> = DANGEROUS_SUBJECTS
        .iter()
        .map(|(subject, _)| (*subject).to_owned())
        .collect();
    for line in identities.iter().flat_map(|identity| &identity.publish) {
        let example = example(line);
        // Neighbours of the permitted subject must be refused: one with a further token, and one without the last
        // token.
        subjects.push(format!("{example}.more"));
        if let Some((less, _)) = example.rsplit_once('.') {
            subjects.push(less.to_owned());
        }
        subjects.push(example);
    }
    for identity in identities {
        subjects.push(format!("_INBOX_{}.any", identity.user));
    }
    subjects.sort();
    subjects.dedup();
    subjects
}

#[test]
fn only_the_named_identities_may_publish_to_dangerous_subjects() {
    for (subject, allowed) in DANGEROUS_SUBJECTS {
        let mut publishers: Vec<_> = identities()
            .into_iter()
            .filter(|identity| identity.publish.iter().any(|line| admits(line, subject)))
            .map(|identity| identity.user)
            .collect();
        publishers.sort();
        assert_eq!(publishers, *allowed, "{subject}");
    }
}

#[test]
fn no_identity_may_subscribe_to_the_inboxes_of_others() {
    for identity in identities() {
        for (subject, queue) in EAVESDROPPING_SUBJECTS {
            assert!(
                !may_subscribe(&identity, subject, *queue),
                "{} may subscribe to {subject}",
                identity.user
            );
        }
    }
}

#[test]
fn every_permitted_publish_works_and_every_other_one_is_refused_for_every_identity() {
    let server = AccountsServer::start();
    let identities = identities();
    let subjects = subjects(&identities);
    let mut failures = Vec::new();
    let mut allowed = 0;
    for identity in &identities {
        let user = &identity.user;
        let mut client = server.client(user);
        for subject in &subjects {
            let is_permitted = identity.publish.iter().any(|line| admits(line, subject));
            let result = client.publish(subject, b"");
            allowed += usize::from(result.is_ok());
            match result {
                Ok(()) if !is_permitted => failures.push(format!("{user} may publish {subject}")),
                Err(refusal) if is_permitted => failures.push(format!("{user}: {refusal}")),
                Err(refusal) => assert!(
                    refusal.contains("Permissions Violation for Publish"),
                    "{refusal}"
                ),
                Ok(()) => {}
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let lines: usize = identities
        .iter()
        .map(|identity| identity.publish.len())
        .sum();
    assert!(allowed >= lines, "{allowed} publishes for {lines} lines");
}

/// Whether the server permits a subscription: where a matching line names a queue group, only named groups may join.
fn may_subscribe(identity: &AccountIdentity, subject: &str, queue: Option<&str>) -> bool {
    let lines = || {
        let subscriptions = identity.subscribe.iter();
        subscriptions.filter(|(line, _)| admits(line, subject))
    };
    if queue.is_some() && lines().any(|(_, group)| group.is_some()) {
        return lines().any(|(_, group)| group.as_deref() == queue);
    }
    lines().any(|(_, group)| group.is_none())
}

#[test]
fn every_permitted_subscription_works_and_every_other_one_is_refused_for_every_identity() {
    let server = AccountsServer::start();
    let identities = identities();
    let mut attempts: Vec<(String, Option<&str>)> = EAVESDROPPING_SUBJECTS
        .iter()
        .map(|(subject, queue)| ((*subject).to_owned(), *queue))
        .collect();
    for (subject, queue) in identities.iter().flat_map(|identity| &identity.subscribe) {
        attempts.push((subject.clone(), queue.as_deref()));
        attempts.push((subject.clone(), None));
        attempts.push((subject.clone(), Some("spy")));
    }
    let mut failures = Vec::new();
    for identity in &identities {
        let user = &identity.user;
        let mut client = server.client(user);
        for (subject, queue) in &attempts {
            let is_permitted = may_subscribe(identity, subject, *queue);
            match (client.subscribe(subject, *queue), is_permitted) {
                (Ok(()), false) => failures.push(format!("{user} may use {subject} {queue:?}")),
                (Err(refusal), true) => failures.push(format!("{user}: {refusal}")),
                _ => {}
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn connections_without_an_identity_are_refused() {
    let server = AccountsServer::start();
    for (user, password) in [
        ("", ""),
        ("egress-fetcher", ""),
        ("egress-fetcher", "secret-of-sweeper"),
        ("admin", "admin"),
    ] {
        let refusal = server.login(user, password).err();
        assert_eq!(
            refusal.as_deref(),
            Some("'Authorization Violation'"),
            "{user}"
        );
    }
}

/// The configuration of a stream, as the specification defines it for these subjects.
fn stream(name: &str, subjects: &str) -> Value {
    let ledger = name == "KV_dray_ledger";
    json!({
        "name": name, "subjects": [subjects], "retention": "limits", "storage": "file", "num_replicas": 1,
        "discard": "new", "max_bytes": 1 << 20, "max_consumers": -1, "max_msgs": -1, "max_age": 0,
        "max_msgs_per_subject": if ledger { 1 } else { -1 }, "allow_direct": ledger,
        "allow_rollup_hdrs": false, "deny_delete": true, "deny_purge": true,
    })
}

/// A request whose reply is JSON.
#[track_caller]
fn ask(client: &mut WireClient, subject: &str, headers: &str, payload: &Value) -> Value {
    let payload = if payload.is_null() {
        String::new()
    } else {
        payload.to_string()
    };
    let reply = client
        .request(subject, headers, payload.as_bytes())
        .unwrap_or_else(|refusal| panic!("{subject}: {refusal}"));
    serde_json::from_slice(&reply.payload).unwrap()
}

/// Creates the streams and a consumer as the provisioner, and returns its connection.
fn provision(server: &AccountsServer) -> WireClient {
    let mut provisioner = server.client("provisioner");
    for (name, subjects) in [
        ("DRAY_WORK", "dray.work.>"),
        ("DRAY_EVENT", "dray.event.>"),
        ("KV_dray_ledger", "$KV.dray_ledger.>"),
    ] {
        let subject = format!("$JS.API.STREAM.CREATE.{name}");
        let reply = ask(&mut provisioner, &subject, "", &stream(name, subjects));
        assert!(reply["error"].is_null(), "{reply}");
    }
    for (stream, durable, filter) in [
        ("DRAY_WORK", "file-resolver", "dray.work.toolcall.>"),
        (
            "DRAY_EVENT",
            "publisher-acme",
            "dray.event.toolcall.v1.*.acme",
        ),
    ] {
        let subject = format!("$JS.API.CONSUMER.CREATE.{stream}.{durable}.{filter}");
        let request = consumer(stream, durable, filter);
        let reply = ask(&mut provisioner, &subject, "", &request);
        assert!(reply["error"].is_null(), "{reply}");
    }
    provisioner
}

/// A request for a consumer.
fn consumer(stream: &str, durable: &str, filter: &str) -> Value {
    json!({
        "stream_name": stream,
        "config": {
            "durable_name": durable, "filter_subject": filter,
            "ack_policy": "explicit", "deliver_policy": "all", "replay_policy": "instant",
            "ack_wait": 30_000_000_000_u64, "max_deliver": 20,
        },
    })
}

/// The number of messages in a stream.
fn message_count(client: &mut WireClient, stream: &str) -> u64 {
    let subject = format!("$JS.API.STREAM.INFO.{stream}");
    ask(client, &subject, "", &Value::Null)["state"]["messages"]
        .as_u64()
        .unwrap()
}

#[test]
fn a_rollup_header_erases_nothing() {
    let server = AccountsServer::start();
    provision(&server);
    let mut resolver = server.client("file-resolver");
    for key in [
        "toolcall.resolve.acme.one",
        "toolcall.resolve.acme.two",
        "toolcall.a.b.c",
    ] {
        let stored = ask(
            &mut resolver,
            &format!("$KV.dray_ledger.{key}"),
            "",
            &json!("kept"),
        );
        assert!(stored["error"].is_null(), "{stored}");
    }
    for rollup in ["all", "sub"] {
        let answer = ask(
            &mut resolver,
            "$KV.dray_ledger.toolcall.resolve.acme.one",
            &format!("Nats-Rollup: {rollup}"),
            &json!("gone"),
        );
        assert_eq!(
            answer["error"]["description"], "rollup not permitted",
            "{answer}"
        );
    }
    assert_eq!(message_count(&mut resolver, "KV_dray_ledger"), 3);
}

#[test]
fn only_the_provisioner_changes_streams_and_it_deletes_none() {
    let server = AccountsServer::start();
    let mut provisioner = provision(&server);
    let mut publisher = server.client("publisher-acme");
    let accepted = ask(
        &mut publisher,
        "dray.work.toolcall.v1.resolve.acme",
        "",
        &json!("work"),
    );
    assert_eq!(accepted["stream"], "DRAY_WORK");
    let changes = [
        ("$JS.API.STREAM.DELETE.DRAY_WORK", Value::Null),
        ("$JS.API.STREAM.PURGE.DRAY_WORK", Value::Null),
        ("$JS.API.STREAM.MSG.DELETE.DRAY_WORK", json!({"seq": 1})),
        (
            "$JS.API.CONSUMER.DELETE.DRAY_WORK.file-resolver",
            Value::Null,
        ),
        (
            "$JS.API.STREAM.UPDATE.DRAY_WORK",
            json!({"name": "DRAY_WORK", "subjects": ["other.>"], "allow_rollup_hdrs": true}),
        ),
    ];
    for identity in identities() {
        let mut client = server.client(&identity.user);
        for (subject, payload) in &changes {
            let may_update = identity.user == "provisioner" && subject.contains("UPDATE");
            let answer = client.publish(subject, payload.to_string().as_bytes());
            assert_eq!(answer.is_ok(), may_update, "{}: {subject}", identity.user);
        }
    }
    // The provisioner may request an update, so that a topology can grow; streams with messages stay.
    let info = ask(
        &mut provisioner,
        "$JS.API.STREAM.INFO.DRAY_WORK",
        "",
        &Value::Null,
    );
    assert_eq!(info["state"]["messages"], 1, "{info}");
    assert_eq!(info["state"]["consumer_count"], 1, "{info}");
}

#[test]
fn work_reaches_the_resolver_and_its_outcome_the_publisher() {
    let server = AccountsServer::start();
    provision(&server);
    let mut publisher = server.client("publisher-acme");
    publisher
        .subscribe("dray.event.toolcall.v1.*.acme", None)
        .unwrap();
    let accepted = ask(
        &mut publisher,
        "dray.work.toolcall.v1.resolve.acme",
        "Nats-Msg-Id: a:toolcall.resolve:0",
        &json!("work"),
    );
    assert_eq!(accepted["seq"], 1, "{accepted}");

    let mut resolver = server.client("file-resolver");
    let work = resolver.request(
        "$JS.API.CONSUMER.MSG.NEXT.DRAY_WORK.file-resolver",
        "",
        b"{\"batch\":1}",
    );
    let work = work.unwrap();
    assert_eq!(work.payload, b"\"work\"");
    let reply = ask(
        &mut resolver,
        "dray.event.toolcall.v1.resolved.acme",
        "",
        &json!("done"),
    );
    assert_eq!(reply["stream"], "DRAY_EVENT", "{reply}");
    assert_eq!(publisher.next().payload, b"\"done\"");

    // The work is acknowledged with a response, as the product does it.
    resolver.request(&work.reply, "", b"+ACK").unwrap();
    let consumer = "$JS.API.CONSUMER.INFO.DRAY_WORK.file-resolver";
    let consumer = ask(&mut resolver, consumer, "", &Value::Null);
    assert_eq!(consumer["num_ack_pending"], 0, "{consumer}");
    assert_eq!(consumer["ack_floor"]["stream_seq"], 1, "{consumer}");

    // The publisher reads the outcome from its consumer, too.
    let outcome = publisher.request(
        "$JS.API.CONSUMER.MSG.NEXT.DRAY_EVENT.publisher-acme",
        "",
        b"{\"batch\":1}",
    );
    let outcome = outcome.unwrap();
    assert_eq!(outcome.payload, b"\"done\"");
    publisher.request(&outcome.reply, "", b"+ACK").unwrap();
    let empty = publisher.request(
        "$JS.API.CONSUMER.MSG.NEXT.DRAY_EVENT.publisher-acme",
        "",
        b"{\"batch\":1,\"no_wait\":true}",
    );
    assert_eq!(empty.unwrap().payload, b"", "a status");
}

#[test]
fn a_responder_may_publish_to_the_reply_subject_only() {
    let server = AccountsServer::start();
    let mut fetcher = server.client("egress-fetcher");
    fetcher
        .subscribe("dray.egress.v1.fetch", Some("egress-fetcher"))
        .unwrap();
    // The resolver sent no request, so the fetcher may not publish to the resolver's inbox.
    let refusal = fetcher.publish("_INBOX_file-resolver.1", b"").unwrap_err();
    assert!(refusal.contains("Permissions Violation"), "{refusal}");

    let mut resolver = server.client("file-resolver");
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| resolver.request("dray.egress.v1.fetch", "", b"please"));
        let reply_subject = fetcher.next().reply;
        fetcher.publish(&reply_subject, b"here").unwrap();
        assert_eq!(answer.join().unwrap().unwrap().payload, b"here");
        // Progress replies before the last one are within the bound.
        fetcher.publish(&reply_subject, b"one more").unwrap();
    });
}
