//! `docker compose up` without fakes of Docker: the shipped Compose file and Dockerfile in a Docker Engine with a
//! separate network, and the operator's path of `deploy/README.md`, command by command.
//!
//! The test builds the images ([`images`]). The programs of NATS and of this product are real, and those of `MinIO` are
//! a fake that enforces the shipped policies. The `cargo` of the build image only copies the binary under test.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use dray_testkit::docker::OUTSIDE_ADDRESS;
use dray_testkit::eventually;
use serde_json::{Value, json};

use super::all_services::PERMISSION_REFUSALS;
use super::compose::SERVICE_NAMES;
use crate::support;
use machine::{OperatorMachine, operator_commands, override_file};

mod images;
mod machine;

/// Services of Compose that can connect to public addresses.
const OUTBOUND_SERVICES: [&str; 3] = ["egress-fetcher", "platform-delivery", "orchestrator"];

/// The end of the last command of `deploy/README.md` for one machine, which tests replace.
const RESOLVE_COMMAND: &str = r#"resolve --arguments '{"plain": "text"}'"#;

/// Tool calls that are in flight when the process is killed.
const CALLS_IN_FLIGHT: usize = 24;
/// Number of these calls that fetch concurrently: the fetcher's limit for one host.
const FETCHES_PER_HOST: usize = 4;

/// Services whose containers keep running. Two others create the topology and the access keys, and end.
fn permanent_services() -> Vec<&'static str> {
    SERVICE_NAMES.into_iter().chain(["nats", "minio"]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn compose_up_runs_all_services_as_the_readme_says() {
    let machine = OperatorMachine::start();
    let mut outside = OutsideServer::start(&machine);
    let [start, publish, call, serve_mcp] = operator_commands().try_into().unwrap();

    let mut up = machine.start_in_foreground(&start, "first.log");
    machine
        .wait_until_healthy(&mut up, &permanent_services())
        .await;
    operator_commands_succeed(&machine, &publish, &call);
    mcp_server_attaches(&machine, &serve_mcp);
    fetching_is_off(&machine, &format!("{publish}{call}"));
    only_three_services_reach_the_outside(&machine);
    nothing_was_refused(&machine);

    machine.run("docker compose restart nats");
    machine
        .wait_until_healthy(&mut up, &permanent_services())
        .await;
    operator_commands_succeed(&machine, &publish, &call);
    up.interrupt();

    // The second start uses the state that the first one created.
    machine.set("EXTERNAL_URL_FETCH_ENABLED=true");
    keep_secrets_of_the_resolver_in_files(&machine);
    let nats = machine.container("nats")["Id"].clone();
    change_permissions(&machine);
    let mut up = machine.start_in_foreground("docker compose up", "second.log");
    machine
        .wait_until_healthy(&mut up, &permanent_services())
        .await;
    assert_ne!(machine.container("nats")["Id"], nats);
    no_secret_is_in_the_environment_of_the_resolver(&machine);
    fetching_is_on(&machine, &format!("{publish}{call}"));
    calls_survive_the_kill_of_a_resolver(&machine, &mut outside);
    machine
        .wait_until_healthy(&mut up, &permanent_services())
        .await;
    every_call_ended_once(&machine);
    nothing_was_refused(&machine);
    up.interrupt();

    // The removal is repeated, because the engine removes the endpoint of a killed container later than the container,
    // and refuses to remove the network until then.
    eventually(
        "the removal of all containers, volumes and networks",
        async || {
            let mut down = machine.shell("docker compose down -v");
            down.output().unwrap().status.success().then_some(())
        },
    )
    .await;
    nothing_is_left(&machine);
}

/// Checks that the commands of `deploy/README.md` after the start print what the page shows.
fn operator_commands_succeed(machine: &OperatorMachine, publish: &str, call: &str) {
    let printed = machine.run(&format!("{publish}{call}"));
    let printed: Vec<Value> = serde_json::Deserializer::from_str(&printed)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        printed,
        [json!({"plain": "text"}), json!({"plain": "text"})]
    );
    let letters = "DRAY_BUS__NATS__PASSWORD=$DRAY_OPERATOR_PASSWORD DRAY_BUS__NATS__NAME=operator \
        DRAY_BUS__NATS__USER=operator dray --nats nats://127.0.0.1:4222 dlq list";
    machine.run(&format!(". ./.env; {letters}"));
    let status = "curl --silent --output /dev/null --write-out '%{http_code}' http://127.0.0.1:5000/v1/models";
    let status = machine.run(status);
    assert_ne!(status, "000", "no HTTP response from the orchestrator");
}

/// Checks that the MCP server of the README starts as `mcp` and responds over its standard streams.
fn mcp_server_attaches(machine: &OperatorMachine, serve: &str) {
    let client = json!({"name": "test", "version": "1"});
    let parameters =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters});
    let answer = machine.run(&format!("echo '{request}' | (. ./.env\n{serve})"));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["result"]["serverInfo"]["name"], "drayage");
}

/// Runs another command in place of the one that the README shows, as the identity `command-line`. Returns whether it
/// succeeded, and its output.
fn dray(machine: &OperatorMachine, commands: &str, arguments: &str) -> (bool, Value) {
    assert!(commands.contains(RESOLVE_COMMAND), "{commands}");
    let (login, call) = commands.split_once("export ").unwrap();
    let (environment, _) = login.split_once("NATS_PASSWORD").unwrap();
    let call = call.replace(RESOLVE_COMMAND, arguments);
    let output = machine.shell(&format!("{environment}\nexport {call}"));
    let output = { output }.output().unwrap();
    let printed = serde_json::from_slice(&output.stdout);
    (
        output.status.success(),
        printed.unwrap_or_else(|_| panic!("{output:?}")),
    )
}

fn page(path: &str) -> String {
    format!("http://{OUTSIDE_ADDRESS}/{path}")
}

/// Writes the override file of the page and the files that it names.
fn keep_secrets_of_the_resolver_in_files(machine: &OperatorMachine) {
    let file = override_file();
    machine.run(&format!(
        "cat > docker-compose.override.yml <<'END'\n{file}END\n\
         . ./.env; mkdir secrets; cd secrets
         printf %s \"$DRAY_FILE_RESOLVER_PASSWORD\" > file-resolver-password
         printf %s \"$DRAY_FILE_RESOLVER_SECRET_KEY\" > file-resolver-secret-key
         chmod 0444 file-resolver-password file-resolver-secret-key"
    ));
}

/// Changes the file of accounts and the label with its digest, as a new version does.
fn change_permissions(machine: &OperatorMachine) {
    machine.run(
        "echo '# Another version.' >> deploy/nats/accounts.conf
         sed --in-place 's/dray.nats.configuration: \"/&0/' docker-compose.yml",
    );
}

fn no_secret_is_in_the_environment_of_the_resolver(machine: &OperatorMachine) {
    let container = machine.container("file-resolver");
    let variables = container["Config"]["Env"].as_array().unwrap();
    let variables: Vec<_> = variables.iter().filter_map(Value::as_str).collect();
    assert!(variables.contains(&"DRAY_SECRETS_DIR=/run/secrets"));
    for name in ["DRAY_BUS__NATS__PASSWORD", "DRAY_STORE__S3__SECRET_KEY"] {
        let value = format!("{name}=");
        let has_value =
            |variable: &&str| variable.len() > value.len() && variable.starts_with(&value);
        assert!(
            !variables.iter().any(has_value),
            "{name} is in the environment"
        );
    }
}

fn fetching_is_off(machine: &OperatorMachine, commands: &str) {
    let (succeeded, printed) = dray(machine, commands, &format!("fetch {} --json", page("page")));
    assert!(!succeeded, "{printed}");
    assert_eq!(printed["code"], "disabled_by_admin", "{printed}");
}

fn fetching_is_on(machine: &OperatorMachine, commands: &str) {
    let (succeeded, printed) = dray(machine, commands, &format!("fetch {} --json", page("page")));
    assert!(succeeded, "{printed}");
    let metadata = "http://169.254.169.254/";
    let (succeeded, printed) = dray(machine, commands, &format!("fetch {metadata} --json"));
    assert!(!succeeded, "{printed}");
    assert_eq!(printed["verdict"], "deny", "{printed}");
}

fn only_three_services_reach_the_outside(machine: &OperatorMachine) {
    for service in permanent_services() {
        let expected = OUTBOUND_SERVICES.contains(&service);
        assert_eq!(machine.reaches_outside(service), expected, "{service}");
    }
}

/// Checks that neither servers nor services report a missing permission.
fn nothing_was_refused(machine: &OperatorMachine) {
    let log = machine
        .run("docker compose logs --no-color 2>&1")
        .to_lowercase();
    assert!(log.contains("server is ready"), "no log of NATS:\n{log}");
    let mut lines = log.lines();
    let refused = lines.find(|line| PERMISSION_REFUSALS.iter().any(|words| line.contains(words)));
    assert_eq!(refused, None);
    let refused = machine.run("docker compose exec -T minio mc refused");
    assert_eq!(refused.trim(), "[]");
}

/// Kills the whole process of the resolver while it waits for pages. The engine starts it again.
fn calls_survive_the_kill_of_a_resolver(machine: &OperatorMachine, outside: &mut OutsideServer) {
    let pages = page("held");
    let mut publisher = machine.shell(&format!(
        ". ./.env; NATS_PASSWORD=$DRAY_PUBLISHER_ACME_PASSWORD \
         python tests/python/publish_tool_calls.py {CALLS_IN_FLIGHT} {pages}"
    ));
    let mut publisher = publisher.stdout(Stdio::piped()).spawn().unwrap();
    outside.wait_for_requests("/held/", FETCHES_PER_HOST);

    let kill = format!("kill -KILL {}", machine.process_id("file-resolver"));
    support::stdout(Command::new("sh").args(["-c", &kill]));
    let killed_at = Instant::now();
    outside.release();

    let mut ended = BTreeSet::new();
    let mut times = Vec::new();
    for line in BufReader::new(publisher.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(line["resolved"], true, "{line}");
        let operation = line["operation"].as_str().unwrap().to_owned();
        assert!(ended.insert(operation), "ended twice: {line}");
        times.push(killed_at.elapsed());
    }
    assert!(publisher.wait().unwrap().success());
    assert_eq!(ended.len(), CALLS_IN_FLIGHT);
    println!(
        "recovery of {CALLS_IN_FLIGHT} calls after kill -9: first {:?}, p95 {:?}",
        times[0],
        percentile(&times, 95)
    );
}

/// The smallest value that at least this many percent of the sorted times do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100) - 1]
}

/// Checks that the stream of events has one final event for each tool call that was published so far.
fn every_call_ended_once(machine: &OperatorMachine) {
    let statistics = "http://127.0.0.1:8222/jsz?accounts=true&streams=true";
    let mut statistics = machine.in_network_of("nats", &["wget", "-q", "-O", "-", statistics]);
    let statistics: Value = serde_json::from_str(&support::stdout(&mut statistics)).unwrap();
    let streams = statistics["account_details"].as_array().unwrap().iter();
    let mut streams = streams
        .filter_map(|account| account["stream_detail"].as_array())
        .flatten();
    let events = streams
        .find(|stream| stream["name"] == "DRAY_EVENT")
        .unwrap();
    let events = events["state"]["messages"].as_u64().unwrap();
    let events = machine.run(&format!(
        ". ./.env; export DRAY_BUS__NATS__PASSWORD=$DRAY_OPERATOR_PASSWORD
         export DRAY_BUS__NATS__NAME=operator DRAY_BUS__NATS__USER=operator
         dray --nats nats://127.0.0.1:4222 events tail --all --count {events} --json"
    ));
    let mut calls = BTreeSet::new();
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let call = event["message"]["toolCallId"].as_str();
        let call = call.unwrap_or_else(|| panic!("{event}")).to_owned();
        assert!(calls.insert(call), "ended twice: {event}");
    }
    // Two of the commands in the README.
    assert_eq!(calls.len(), CALLS_IN_FLIGHT + 2);
}

fn nothing_is_left(machine: &OperatorMachine) {
    assert_eq!(machine.containers(), Vec::<Value>::new());
    let volumes = machine.engine.get("/volumes");
    assert!(
        volumes["Volumes"].as_array().is_none_or(Vec::is_empty),
        "{volumes}"
    );
    let networks = machine.engine.get("/networks");
    let names = networks.as_array().unwrap().iter();
    let names: BTreeSet<_> = names
        .map(|network| network["Name"].as_str().unwrap())
        .collect();
    assert_eq!(names, BTreeSet::from(["bridge", "host", "none"]));
}

/// A web server on a public address.
struct OutsideServer {
    process: Child,
    requests: BufReader<ChildStdout>,
}

impl OutsideServer {
    fn start(machine: &OperatorMachine) -> Self {
        let python = support::python();
        let mut command = machine
            .engine
            .network()
            .outside_command(python.to_str().unwrap());
        command
            .arg(support::root().join("tests/python/outside_server.py"))
            .arg(OUTSIDE_ADDRESS.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut requests = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        requests.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { process, requests }
    }

    /// Waits until this many requests for paths with this prefix have arrived.
    fn wait_for_requests(&mut self, prefix: &str, count: usize) {
        let lines = self.requests.by_ref().lines().map(Result::unwrap);
        let requests = lines.filter(|line| line.starts_with(prefix)).take(count);
        assert_eq!(requests.count(), count, "the server ended");
    }

    /// Makes the server respond to the requests that it delays, and to all that follow.
    fn release(&mut self) {
        let mut control = self.process.stdin.as_ref().unwrap();
        control.write_all(b"release\n").unwrap();
    }
}

impl Drop for OutsideServer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
