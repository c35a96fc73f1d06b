//! What identities could do with the subjects that they name for replies, and with consumers. The server checks neither
//! the subject of a reply nor most of a request's body.

use serde_json::{Value, json};

use super::server::AccountsServer;
use super::{ask, consumer, message_count, provision};

/// A key of a service, which no publisher may write.
const LEDGER_KEY: &str = "$KV.dray_ledger.toolcall.resolve.other.one";
/// A call that no publisher may make.
const EXEC_SUBJECT: &str = "dray.sandbox.v1.exec";

#[test]
fn replies_to_a_publisher_reach_no_subject_of_a_service() {
    let server = AccountsServer::start();
    let mut provisioner = provision(&server);
    let mut resolver = server.client("file-resolver");
    let mut sandboxes = server.client("sandbox-transfer");
    sandboxes
        .subscribe(EXEC_SUBJECT, Some("sandbox-transfer"))
        .unwrap();
    resolver
        .subscribe("dray.file.v1.outcome.*", Some("file-resolver"))
        .unwrap();
    ask(&mut resolver, LEDGER_KEY, "", &json!("kept"));
    for number in 0..9 {
        let event = "dray.event.toolcall.v1.resolved.acme";
        ask(&mut resolver, event, "", &json!(number));
    }

    let mut publisher = server.client("publisher-acme");
    let lines: [(&str, &[u8]); 4] = [
        ("dray.work.toolcall.v1.resolve.acme", b"work"),
        (
            "$JS.API.CONSUMER.MSG.NEXT.DRAY_EVENT.publisher-acme",
            b"{\"batch\":1,\"no_wait\":true}",
        ),
        ("dray.file.v1.outcome.acme", b"outcome"),
        ("$JS.ACK.DRAY_EVENT.publisher-acme.1.1.1.1.0", b"+ACK"),
    ];
    for reply in [
        LEDGER_KEY,
        EXEC_SUBJECT,
        "dray.work.toolcall.v1.resolve.other",
    ] {
        for (subject, payload) in lines {
            publisher
                .publish_for_reply(subject, reply, payload)
                .unwrap();
            if subject.starts_with("dray.file.") {
                // The service replies where the request says, as far as the server permits.
                let request = resolver.next();
                assert_ne!(request.reply, reply);
                resolver.publish(&request.reply, b"outcome").unwrap();
            }
        }
    }
    // Replies to later requests of the same kinds come after those to the earlier ones.
    ask(&mut publisher, lines[0].0, "", &json!("last"));
    publisher.request(lines[1].0, "", lines[1].1).unwrap();

    assert_eq!(message_count(&mut provisioner, "DRAY_WORK"), 4);
    let info = ask(
        &mut provisioner,
        "$JS.API.STREAM.INFO.DRAY_WORK",
        "",
        &json!({"subjects_filter": ">"}),
    );
    assert_eq!(
        info["state"]["subjects"],
        json!({"dray.work.toolcall.v1.resolve.acme": 4}),
        "{info}"
    );
    let get = format!("$JS.API.DIRECT.GET.KV_dray_ledger.{LEDGER_KEY}");
    let key = resolver.request(&get, "", b"").unwrap();
    assert_eq!(key.payload, b"\"kept\"");
    assert_eq!(sandboxes.arrived(), 0);
}

#[test]
fn no_client_names_an_acknowledgement_as_its_reply_subject() {
    let server = AccountsServer::start();
    provision(&server);
    let mut publisher = server.client("publisher-acme");
    for reply in [
        "$JS.ACK.DRAY_WORK.file-resolver.1.1.1.1.0",
        "_R_.Abcdef.Ghijkl",
        "_GR_.abcdef.ghijkl.$KV.dray_ledger.a",
    ] {
        let work = "dray.work.toolcall.v1.resolve.acme";
        let refusal = publisher.publish_for_reply(work, reply, b"").unwrap_err();
        assert!(refusal.contains("Permissions Violation"), "{refusal}");
    }
}

#[test]
fn a_publisher_gets_every_reply_to_a_call() {
    let server = AccountsServer::start();
    let mut resolver = server.client("file-resolver");
    resolver
        .subscribe("dray.file.v1.outcome.*", Some("file-resolver"))
        .unwrap();
    let mut publisher = server.client("publisher-acme");
    let inbox = "_INBOX_publisher-acme.call";
    publisher
        .publish_for_reply("dray.file.v1.outcome.acme", inbox, b"please")
        .unwrap();
    let reply_subject = resolver.next().reply;
    for payload in ["heartbeat", "", "outcome"] {
        let headers = "Dray-Progress: 1";
        resolver
            .publish_with_headers(&reply_subject, headers, payload.as_bytes())
            .unwrap();
    }
    for payload in ["heartbeat", "", "outcome"] {
        assert_eq!(publisher.next_reply().payload, payload.as_bytes());
    }
}

#[test]
fn no_person_changes_or_drains_a_durable_consumer() {
    let server = AccountsServer::start();
    let mut provisioner = provision(&server);
    let info = |client: &mut super::WireClient| {
        let subject = "$JS.API.CONSUMER.INFO.DRAY_WORK.file-resolver";
        let info = ask(client, subject, "", &Value::Null);
        (info["config"].clone(), info["num_ack_pending"].clone())
    };
    let before = info(&mut provisioner);
    let mut publisher = server.client("publisher-acme");
    let work = "dray.work.toolcall.v1.resolve.acme";
    ask(&mut publisher, work, "", &json!("work"));
    let mut changed = consumer("DRAY_WORK", "file-resolver", "dray.work.nothing.>");
    let config = changed["config"].as_object_mut().unwrap();
    let name = config.remove("durable_name").unwrap();
    config.insert("name".to_owned(), name);
    let changed = changed.to_string();
    for user in ["console", "console-operator", "operator", "mcp"] {
        let mut person = server.client(user);
        let inbox = format!("_INBOX_{user}.1");
        for (subject, payload) in [
            ("$JS.API.CONSUMER.CREATE.DRAY_WORK", changed.as_str()),
            ("$JS.API.CONSUMER.MSG.NEXT.DRAY_WORK.file-resolver", "1"),
        ] {
            let refused = person.publish_for_reply(subject, &inbox, payload.as_bytes());
            assert!(refused.is_err(), "{user}: {subject}");
        }
    }
    assert_eq!(info(&mut provisioner), before);
}

#[test]
fn the_provisioner_makes_the_consumers_of_the_topology_alone() {
    let server = AccountsServer::start();
    let mut provisioner = provision(&server);
    let mut sweeper = server.client("sweeper");
    ask(&mut sweeper, LEDGER_KEY, "", &json!("secret"));
    for stream in ["DRAY_WORK", "DRAY_EVENT", "KV_dray_ledger"] {
        let mut spy = consumer(stream, "spy", "");
        spy["config"]["deliver_subject"] = json!("_INBOX_provisioner.spy");
        let spy = spy.to_string();
        for subject in [
            format!("$JS.API.CONSUMER.CREATE.{stream}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.spy"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.spy.>"),
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.spy"),
        ] {
            let refused =
                provisioner.publish_for_reply(&subject, "_INBOX_provisioner.1", spy.as_bytes());
            assert!(refused.is_err(), "{subject}");
        }
    }
    // Under a subject of the topology, the server compares the name and the filter.
    let subject = "$JS.API.CONSUMER.CREATE.DRAY_WORK.file-resolver.dray.work.toolcall.>";
    for (name, filter) in [
        ("spy", "dray.work.toolcall.>"),
        ("file-resolver", "dray.work.>"),
    ] {
        let request = consumer("DRAY_WORK", name, filter);
        let reply = ask(&mut provisioner, subject, "", &request);
        assert!(!reply["error"].is_null(), "{name} {filter}: {reply}");
    }
}
