//! The console of `dray up` in Chromium, over NATS, as a person uses it.

mod fixture;
mod lighthouse;
mod oidc;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use dray_types::Sha256Digest;
use serde_json::{Value, json};

use self::fixture::{ASKED_HOST, ConsoleFixture, DELIVERY_ID, SESSION_ID};
use crate::support::{self, node};

/// Content of the file that the browser drops on a sandbox, as in `walk.cjs`.
const DROPPED_TEXT: &str = "dropped";
/// Deliveries beside the first one: more than a page has.
const FURTHER_DELIVERIES: usize = 101;
/// Events that the live page gets in two halves, without pauses.
const FLOOD_EVENTS: usize = 1_000;

/// The process that drives the browser. It requests actions that only the test can perform.
struct BrowserWalk(Child);

impl BrowserWalk {
    fn start(fixture: &ConsoleFixture, settings: &Value) -> Self {
        let file = fixture.directory.path().join("walk.json");
        std::fs::write(&file, settings.to_string()).unwrap();
        let process = Command::new("node")
            .arg(support::root().join("tests/console/walk.cjs"))
            .arg(&file)
            .current_dir(node::packages("node-console", &node::BROWSER_PACKAGES))
            .env("HOME", fixture.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(process)
    }

    /// Performs the actions that the browser requests until it is done, and returns its report.
    async fn serve(mut self, fixture: &mut ConsoleFixture) -> Value {
        let mut stdin = self.0.stdin.take().unwrap();
        let requests = BufReader::new(self.0.stderr.take().unwrap());
        let mut browser_messages = String::new();
        for line in requests.lines() {
            let line = line.unwrap();
            match line.as_str() {
                "publish" => drop(fixture.publish_garbage().await),
                "flood" => fixture.publish_events(FLOOD_EVENTS).await,
                "stop-bus" => fixture.nats.stop(),
                "start-bus" => fixture.nats.restart(),
                "stop-store" => fixture.stop_store(),
                "start-store" => fixture.start_store(),
                message => {
                    browser_messages.push_str(message);
                    browser_messages.push('\n');
                    continue;
                }
            }
            writeln!(stdin, "done").unwrap();
        }
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{browser_messages}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Checks the report's chat: a completed stage, an answer with a file, the request as a `curl` command, a cancelled
/// answer, and the turns of both.
fn check_playground(report: &Value) {
    let chat = &report["chat"];
    assert!(
        chat["stages"]
            .as_array()
            .unwrap()
            .iter()
            .any(|stage| { stage.as_str().is_some_and(|text| text.contains("done")) }),
        "{chat}"
    );
    assert!(
        chat["answer"]
            .as_str()
            .unwrap()
            .contains("The report is ready."),
        "{chat}"
    );
    assert_eq!(chat["files"], 1, "{chat}");
    let curl = chat["curl"].as_str().unwrap();
    assert!(
        curl.contains("/v1/chat/completions") && curl.contains("file_id"),
        "{curl}"
    );
    assert_eq!(chat["cancelled"], "cancelled", "{chat}");
    let holder = chat["holder"].as_str().unwrap();
    assert!(
        holder.contains("note.txt") && holder.contains("until"),
        "{holder}"
    );
    check_turns(report);
}

/// Checks the turns of the chat: rows with their ends, and the page of one with its tool and its timeline.
fn check_turns(report: &Value) {
    let turns = &report["turns"];
    assert_eq!(turns["marks"], 0, "{turns}");
    let record = turns["record"].as_str().unwrap();
    assert!(
        record.contains("Turn of clerk finished") && record.contains("sandbox_list: 1 call"),
        "{turns}"
    );
    let timeline = turns["timeline"].as_array().unwrap();
    let has_row = |text: &str| {
        let mut rows = timeline.iter().filter_map(Value::as_str);
        rows.any(|row| row.contains(text))
    };
    assert!(has_row("Turn of clerk began") && has_row("Turn of clerk finished"));
    assert!(has_row("Call of sandbox_list by clerk finished"), "{turns}");
    // The page that selects only beginnings removed its marks, and shows no row of an end.
    let begins = report["chat"]["begins"].as_array().unwrap();
    let mut begins = begins.iter().filter_map(Value::as_str);
    assert!(begins.all(|row| row.contains("began")), "{report}");
}

/// Checks that the last entries of long lists were reached, and that a printed page is white.
fn check_lists(report: &Value) {
    let last = report["lastEntry"].as_str().unwrap();
    assert!(last.contains("file-599"), "{report}");
    assert_eq!(report["listedDeliveries"], FURTHER_DELIVERIES + 1);
    assert_eq!(report["paper"], "rgb(255, 255, 255)");
}

/// Checks the live page under more events than it shows. Every row arrived once, no change of the page has more rows
/// than one message, and neither the heap nor the document grows with the number of events. The rate depends on the
/// machine: `cargo xtask bench console` measures it.
fn check_flood(report: &Value) {
    let flood = &report["flood"];
    assert_eq!(flood["lost"], 0, "{flood}");
    assert!(flood["rows"].as_u64().unwrap() <= 500, "{flood}");
    assert!(flood["largestBatch"].as_u64().unwrap() <= 250, "{flood}");
    let bytes = |name: &str| flood[name].as_f64().unwrap();
    assert!(
        bytes("heapAfter") <= bytes("heapBetween") * 1.25 + 1e6,
        "the tab grows: {flood}"
    );
    assert!(
        bytes("nodesAfter") <= bytes("nodesBetween") * 1.1,
        "the page grows: {flood}"
    );
}

/// Checks that pages reported the outage of the store with their status, and showed nothing that they did not know.
fn check_store_outage(fixture: &ConsoleFixture, report: &Value) {
    let outage = &report["storeOutage"];
    let text = |name: &str| outage[name].as_str().unwrap().to_owned();
    assert!(
        text("health").contains("The store does not work"),
        "{outage}"
    );
    assert!(text("setup").contains("does not work"), "{outage}");
    for (page, notice) in [
        ("files", "Stored files cannot be listed."),
        ("file", "The store does not respond."),
    ] {
        assert!(text(page).contains(notice), "{page}: {outage}");
    }
    assert!(!text("files").contains("No stored files."), "{outage}");
    for invented in [
        "It is not among the finished content",
        "No fetch of these bytes is known",
    ] {
        assert!(!text("file").contains(invented), "{outage}");
    }
    for action in ["download", "drop"] {
        assert_eq!(outage["statuses"][action], 503, "{outage}");
    }
    let placed = fixture.directory.path().join("box");
    assert!(!placed.join("late.txt").exists(), "{outage}");
    assert!(placed.join("later.txt").exists(), "{outage}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_the_console_works_in_a_browser_and_survives_outages_of_bus_and_store() {
    let mut fixture = ConsoleFixture::start().await;
    let server = fixture.serve();
    fixture.deliver();
    fixture.deliver_repeatedly(FURTHER_DELIVERIES).await;
    fixture.request_asked_host().await;
    let garbage = fixture.publish_garbage().await;
    let letter = fixture.letter_of(&garbage).await;
    #[expect(
        clippy::disallowed_methods,
        reason = "names the directory for new screenshots of the documentation"
    )]
    let screenshots = std::env::var("CONSOLE_SCREENSHOTS").ok();
    let settings = json!({
        "login": server.url,
        "session": SESSION_ID,
        "delivery": DELIVERY_ID,
        "letter": letter,
        "digest": Sha256Digest::of(DROPPED_TEXT.as_bytes()).to_hex(),
        "screenshots": screenshots,
        "asked": format!("{ASKED_HOST}:443"),
        "flood": FLOOD_EVENTS,
    });
    let report = BrowserWalk::start(&fixture, &settings)
        .serve(&mut fixture)
        .await;
    for list in ["findings", "violations", "failures", "invalid"] {
        assert_eq!(report[list], json!([]), "{list}: {report}");
    }
    for (page, width) in report["widths"].as_object().unwrap() {
        assert!(width.as_u64().unwrap() <= 400, "{page} is {width} wide");
    }
    let text = |name: &str| report[name].as_str().unwrap().to_owned();
    assert!(text("delivery").contains("report.txt") && text("delivery").contains("copied"));
    assert_eq!(text("verdict"), "refused");
    check_lists(&report);
    assert!(report["steps"].as_u64().unwrap() > 5, "{report}");
    assert!(text("placed").contains("dropped.txt"), "{report}");
    let placed = std::fs::read_to_string(fixture.directory.path().join("box/dropped.txt")).unwrap();
    assert_eq!(
        (placed.as_str(), text("downloaded").as_str()),
        (DROPPED_TEXT, DROPPED_TEXT)
    );
    assert!(text("sent").contains("report.txt"), "{report}");
    assert!(text("sent").contains("sandbox_send"), "{report}");
    assert!(text("account").contains("accepted"), "{report}");
    assert!(text("backend").contains("ready"), "{report}");
    assert_eq!(text("content"), DROPPED_TEXT);
    assert!(
        text("holders").contains("No delivery on record"),
        "{report}"
    );
    assert!(text("plan").contains("would be started again"), "{report}");
    assert_eq!(text("firstFocus"), "Skip to the content");
    check_playground(&report);
    check_flood(&report);
    assert!(text("answered").contains("may reach"), "{report}");
    assert!(text("replay").contains("with another outcome"), "{report}");
    assert!(text("outage").contains("The bus does not work"), "{report}");
    check_store_outage(&fixture, &report);
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_score_at_least_95_in_lighthouse_for_access_practices_and_search() {
    // Performance depends on what else this machine does: `cargo xtask soak -- lighthouse` judges it, and all pages.
    lighthouse::judge_pages(4, &["accessibility", "best-practices", "seo"]).await;
}
