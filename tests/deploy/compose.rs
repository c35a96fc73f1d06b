//! Tests of `docker compose up`, as far as it can be checked without a Docker daemon.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{read, strings, yaml};
use crate::support;

/// The services of the product.
pub(super) const SERVICE_NAMES: [&str; 6] = [
    "egress-fetcher",
    "file-resolver",
    "orchestrator",
    "sandbox-transfer",
    "platform-delivery",
    "sweeper",
];

/// The program that writes the passwords into a file.
fn credentials_program() -> Command {
    Command::new(support::root().join("deploy/credentials.sh"))
}

/// Variables as `deploy/credentials.sh` writes them.
fn credentials() -> BTreeMap<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(".env");
    support::stdout(credentials_program().arg(&file));
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| line.split_once('=').expect("NAME=value"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// `docker compose`, or the older separate program.
fn compose(arguments: &[&str]) -> Command {
    let built_in = Command::new("docker")
        .args(["compose", "version"])
        .output()
        .is_ok_and(|output| output.status.success());
    let mut command = if built_in {
        let mut command = Command::new("docker");
        command.arg("compose");
        command
    } else {
        Command::new("docker-compose")
    };
    command.args(arguments).current_dir(support::root());
    command
}

/// The Compose file with all defaults and variables applied, as the program prints it.
pub(super) fn effective() -> Value {
    let text = support::stdout(compose(&["config"]).envs(credentials()));
    yaml(&text).remove(0)
}

#[test]
fn compose_accepts_the_file() {
    let services = effective();
    let services = services["services"].as_object().unwrap();
    let names: Vec<_> = services.keys().map(String::as_str).collect();
    for name in [
        "egress-fetcher",
        "file-resolver",
        "minio",
        "nats",
        "orchestrator",
        "platform-delivery",
        "sandbox-transfer",
        "store-setup",
        "sweeper",
        "topology",
    ] {
        assert!(names.contains(&name), "{name} is missing among {names:?}");
    }
}

#[test]
fn nats_is_started_again_when_a_file_that_it_reads_at_its_start_changes() {
    let mut hasher = Sha256::new();
    for name in ["accounts.conf", "nats.conf"] {
        hasher.update(read(&format!("deploy/nats/{name}")));
    }
    let digest = hasher.finalize();
    let digits: Vec<_> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let label = &effective()["services"]["nats"]["labels"]["dray.nats.configuration"];
    // All files of the directory that the container has.
    let files = std::fs::read_dir(support::root().join("deploy/nats")).unwrap();
    assert_eq!(files.count(), 2);
    assert_eq!(label, &digits.concat(), "run `cargo xtask generate`");
}

#[test]
fn compose_stops_without_credentials_and_names_how_to_create_them() {
    let output = compose(&["config"])
        .env_clear()
        .env("PATH", search_path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("deploy/credentials.sh"), "{stderr}");
}

/// The search path of the test.
fn search_path() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "the program gets the search path of the test"
    )]
    std::env::var("PATH").unwrap()
}

#[test]
fn credentials_are_new_each_time_and_one_for_each_identity() {
    let (first, second) = (credentials(), credentials());
    let names: Vec<_> = first.keys().collect();
    assert_eq!(names, second.keys().collect::<Vec<_>>());
    for (name, value) in &first {
        assert!(value.len() > 40, "{name} is short");
        assert!(
            value.starts_with(|first: char| first.is_ascii_alphabetic()),
            "{name} could be read as a number"
        );
        assert_ne!(Some(value), second.get(name), "{name} does not change");
    }
    let accounts = read("deploy/nats/accounts.conf");
    for variable in accounts.split('$').skip(1) {
        let variable: String = variable
            .chars()
            .take_while(|character| character.is_ascii_uppercase() || *character == '_')
            .collect();
        if variable.starts_with("DRAY_") {
            assert!(first.contains_key(&variable), "{variable} is not generated");
        }
    }
}

#[test]
fn credentials_are_in_a_file_of_their_owner_that_is_replaced_on_request_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(".env");
    let text = || std::fs::read_to_string(&file).unwrap();
    let mode = || {
        let metadata = std::fs::symlink_metadata(&file).unwrap();
        metadata.permissions().mode()
    };
    support::stdout(credentials_program().arg(&file));
    // A regular file with the mode 0600.
    assert_eq!(mode(), 0o100_600);
    let first = text();

    let refused = credentials_program().arg(&file).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("--replace"), "{message}");
    assert_eq!(text(), first);

    let setting = "EXTERNAL_URL_FETCH_ENABLED=true\n";
    std::fs::write(&file, format!("{setting}{first}")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    support::stdout(credentials_program().arg("--replace").arg(&file));
    let replaced = text();
    assert_eq!(mode(), 0o100_600);
    assert!(replaced.ends_with(setting), "other lines stay: {replaced}");
    assert_eq!(replaced.lines().count(), first.lines().count() + 1);
    for line in first.lines() {
        // What was made with this key has to stay readable.
        let stays = line.starts_with("DRAY_ORCHESTRATOR_DERIVATION_KEY=");
        assert_eq!(replaced.contains(line), stays, "{line}");
    }

    // Nothing is printed into a log, and nothing else stays.
    let without_file = credentials_program().output().unwrap();
    assert_eq!(without_file.status.code(), Some(2), "{without_file:?}");
    assert!(without_file.stdout.is_empty());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn s_3_each_network_to_the_outside_belongs_to_one_service() {
    let file = effective();
    assert_eq!(file["networks"]["inside"]["internal"], true);
    // Ports are published only from a network that is not internal. Without masquerading, connections from it to the
    // outside get no response.
    let options = &file["networks"]["published"]["driver_opts"];
    let masquerade = "com.docker.network.bridge.enable_ip_masquerade";
    assert_eq!(options[masquerade], "false");
    for (name, service) in file["services"].as_object().unwrap() {
        let networks = service["networks"].as_object().unwrap();
        assert_eq!(
            networks.contains_key("outside"),
            name == "egress-fetcher",
            "{name}"
        );
        assert_eq!(
            networks.contains_key("platforms"),
            name == "platform-delivery",
            "{name}"
        );
        assert_eq!(
            networks.contains_key("models"),
            name == "orchestrator",
            "{name}"
        );
        // The network with the first name gets the default route; internal networks get none.
        let default = networks.keys().filter(|network| *network != "inside").min();
        let default = default.map_or("inside", String::as_str);
        assert_eq!(
            default == "published",
            matches!(name.as_str(), "nats" | "minio"),
            "{name}"
        );
        let is_published = matches!(name.as_str(), "nats" | "minio" | "orchestrator");
        assert_eq!(networks.contains_key("published"), is_published, "{name}");
    }
}

#[test]
fn s_1_each_container_holds_its_own_credentials_and_no_others() {
    let file = effective();
    for name in SERVICE_NAMES {
        let environment = &file["services"][name]["environment"];
        assert_eq!(environment["DRAY_BUS__NATS__USER"], *name);
        assert_eq!(environment["DRAY_STORE__S3__ACCESS_KEY"], *name);
    }
    let own_credentials = credentials();
    let fetcher = file["services"]["egress-fetcher"]["environment"]
        .as_object()
        .unwrap();
    let secrets = fetcher
        .keys()
        .filter(|key| key.ends_with("PASSWORD") || key.ends_with("KEY"));
    assert_eq!(secrets.count(), 3, "password, access key, secret key");
    assert!(fetcher.keys().all(|key| !own_credentials.contains_key(key)));
}

#[test]
fn keys_of_the_orchestrator_do_not_follow_from_its_key_of_the_store() {
    let own_credentials = credentials();
    let text = support::stdout(compose(&["config"]).envs(&own_credentials));
    let file = yaml(&text).remove(0);
    let environment = |name: &str| file["services"][name]["environment"].clone();
    let key = &environment("orchestrator")["DRAY_STORE__S3__DERIVATION_KEY"];
    assert_eq!(*key, own_credentials["DRAY_ORCHESTRATOR_DERIVATION_KEY"]);
    // Its holder can read the sign-ins of users, so no other container has it.
    for name in SERVICE_NAMES
        .into_iter()
        .filter(|name| *name != "orchestrator")
    {
        let key = &environment(name)["DRAY_STORE__S3__DERIVATION_KEY"];
        assert_eq!(*key, Value::Null, "{name}");
    }
}

#[test]
fn the_log_of_every_container_has_a_limit() {
    for (name, service) in effective()["services"].as_object().unwrap() {
        let options = &service["logging"]["options"];
        assert_eq!(options["max-size"], "50m", "{name}");
        assert_eq!(options["max-file"], "5", "{name}");
    }
}

#[test]
fn containers_are_locked_down() {
    let file = effective();
    for name in SERVICE_NAMES.into_iter().chain(["topology"]) {
        let service = &file["services"][name];
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["user"], "65532:65532", "{name}");
        assert_eq!(strings(&service["cap_drop"]), ["ALL"], "{name}");
        assert_eq!(
            strings(&service["security_opt"]),
            ["no-new-privileges:true"],
            "{name}"
        );
    }
}

#[test]
fn ports_are_published_only_on_loopback() {
    let text = read("docker-compose.yml");
    let published: Vec<_> = text
        .lines()
        .filter(|line| line.contains("ports:"))
        .collect();
    assert_eq!(published.len(), 3);
    for line in published {
        assert!(line.contains("[\"127.0.0.1:"), "{line}");
    }
}

#[test]
fn a_separate_file_publishes_previews_on_loopback() {
    let files = [
        "-f",
        "docker-compose.yml",
        "-f",
        "deploy/compose.preview.yml",
        "config",
    ];
    let text = support::stdout(compose(&files).envs(credentials()));
    let services = yaml(&text).remove(0);
    let service = &services["services"]["sandbox-transfer"];
    // The ports are read from the text of the file, because versions of compose print ports in different forms.
    let written = read("deploy/compose.preview.yml");
    assert!(
        written.contains("    ports: [\"127.0.0.1:7350:7350\"]\n"),
        "{written}"
    );
    assert_eq!(service["ports"].as_array().map(Vec::len), Some(1));
    let networks: Vec<_> = service["networks"].as_object().unwrap().keys().collect();
    assert_eq!(
        networks,
        ["inside", "published"],
        "no network to the outside"
    );
    let environment = &service["environment"];
    assert_eq!(
        environment["DRAY_SANDBOX_TRANSFER__PREVIEW__LISTEN"],
        "0.0.0.0:7350"
    );
    let url = &environment["DRAY_SANDBOX_TRANSFER__PREVIEW__URL"];
    assert_eq!(url, "http://127.0.0.1:7350");
    // The settings of the base file for the service remain.
    assert_eq!(environment["DRAY_BUS__NATS__USER"], "sandbox-transfer");
    assert_eq!(
        effective()["services"]["sandbox-transfer"]["ports"],
        Value::Null
    );
}

#[test]
fn s_2_the_image_runs_without_root_and_has_a_health_check() {
    let text = read("deploy/Dockerfile");
    let last = text.rsplit("\nFROM ").next().unwrap();
    for line in [
        "USER 65532:65532",
        "STOPSIGNAL SIGTERM",
        "ENTRYPOINT [\"/usr/local/bin/dray\"]",
    ] {
        assert!(last.contains(line), "{line}");
    }
    assert!(last.contains("\"healthcheck\""), "no health check");
    assert!(text.contains("--locked"), "the build must use Cargo.lock");
}

/// The policy of each access key.
fn policies() -> Vec<(String, Value)> {
    let directory = support::root().join("deploy/minio/policies");
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let user = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let policy = std::fs::read_to_string(path).unwrap();
            (user, serde_json::from_str(&policy).unwrap())
        })
        .collect()
}

#[test]
fn every_policy_has_a_key_with_its_own_password() {
    let script = read("deploy/minio/setup.sh");
    let file = effective();
    let passwords = file["services"]["store-setup"]["environment"]
        .as_object()
        .unwrap();
    for (user, _) in policies() {
        let variable = format!("{}_SECRET_KEY", user.to_uppercase().replace('-', "_"));
        let line = format!("grant {user} \"${variable}\"\n");
        assert!(script.contains(&line), "{line} is not in setup.sh");
        assert!(passwords.contains_key(&variable), "{variable}");
    }
    let granted = script.lines().filter(|line| line.starts_with("grant "));
    assert_eq!(granted.count(), policies().len());
}

#[test]
fn no_policy_deletes_content_or_has_wildcards() {
    let content = "arn:aws:s3:::drayage/cas/*";
    for (user, policy) in policies() {
        for statement in policy["Statement"].as_array().unwrap() {
            let actions = strings(&statement["Action"]);
            let may_delete = actions.contains(&"s3:DeleteObject");
            let is_for_content = strings(&statement["Resource"]) == [content];
            assert!(
                !(may_delete && is_for_content),
                "{user}: {}",
                statement["Sid"]
            );
            let has_wildcard = actions.iter().any(|action| action.contains('*'));
            assert!(!has_wildcard, "{user}: {}", statement["Sid"]);
        }
    }
}

#[test]
fn prefixes_have_their_lifetimes_and_no_unfinished_upload_stays() {
    let expected = BTreeMap::from([
        ("cache/".to_owned(), (Some(15), Some(1))),
        ("cas/".to_owned(), (Some(15), Some(1))),
        // Its objects are small, so nothing is uploaded in parts.
        ("origin/".to_owned(), (Some(90), None)),
        ("stage/".to_owned(), (Some(1), Some(1))),
    ]);
    let lifetimes = |text: &str| {
        let rules: Value = serde_json::from_str(text).unwrap();
        let rules = rules["Rules"].as_array().unwrap().clone();
        let lifetime = |rule: &Value| {
            let prefix = rule["Filter"]["Prefix"].as_str().unwrap().to_owned();
            let unfinished = &rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"];
            (
                prefix,
                (rule["Expiration"]["Days"].as_u64(), unfinished.as_u64()),
            )
        };
        rules.iter().map(lifetime).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(lifetimes(&read("deploy/minio/lifecycle.json")), expected);
    // The page has the same rules for other stores.
    let page = read("docs/store.md");
    let (_, lifecycle) = page.split_once("**Lifecycle.**").unwrap();
    let block = lifecycle.split("```").nth(1).unwrap();
    assert_eq!(lifetimes(block.strip_prefix("json").unwrap()), expected);
}
