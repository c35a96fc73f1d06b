//! Changes of the sources while a service runs.

use std::time::Duration;

use super::*;

fn watcher(sources: &ConfigSources) -> SectionWatcher<TestSection> {
    let loaded = loader().load(sources).unwrap();
    let section = loaded.section("egress-fetcher").unwrap();
    let reader = loaded.reader("egress-fetcher");
    SectionWatcher::new(reader, Duration::from_millis(5), section)
}

#[tokio::test]
async fn a_changed_file_or_secret_is_read_and_an_invalid_one_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (file, secrets) = (
        directory.path().join("dray.toml"),
        directory.path().join("secrets"),
    );
    std::fs::create_dir(&secrets).unwrap();
    let write = |agent: &str| std::fs::write(&file, format!("[egress-fetcher]\nagent = {agent}\n"));
    write("\"one\"").unwrap();
    let variables = [("DRAY_SECRETS_DIR", secrets.to_str().unwrap())];
    let sources = ConfigSources::new(variables.into_iter().collect()).file(&file);
    let mut watcher = watcher(&sources);
    assert_eq!(watcher.in_force().agent, "one");

    write("\"two\"").unwrap();
    let SectionChange::Changed(changed) = watcher.changed().await else {
        panic!("the valid file must be a change");
    };
    assert_eq!(changed.agent, "two");
    watcher.applied(changed);

    write("2").unwrap();
    let SectionChange::Invalid(problem) = watcher.changed().await else {
        panic!("the invalid file must be a problem");
    };
    assert!(problem.contains("`egress-fetcher.agent`"), "{problem}");
    assert_eq!(watcher.in_force().agent, "two");

    write("\"two\"").unwrap();
    assert_eq!(watcher.changed().await, SectionChange::Restored);

    std::fs::write(secrets.join("DRAY_EGRESS_FETCHER__KEY"), "hunter2\n").unwrap();
    let SectionChange::Changed(changed) = watcher.changed().await else {
        panic!("the valid secret must be a change");
    };
    assert_eq!(changed.key, Secret::new("hunter2"));
    // What the service cannot use is not offered again, until it changes.
    watcher.rejected();
    std::fs::write(secrets.join("DRAY_EGRESS_FETCHER__KEY"), "hunter3\n").unwrap();
    let SectionChange::Changed(changed) = watcher.changed().await else {
        panic!("the valid secret must be a change");
    };
    assert_eq!(changed.key, Secret::new("hunter3"));
}

#[test]
fn a_reader_shows_no_value_of_its_sources() {
    let sources = ConfigSources::default().set("egress-fetcher.key", "hunter2");
    let loaded = loader().load(&sources).unwrap();
    let shown = format!("{:?}", loaded.reader("egress-fetcher"));
    assert!(!shown.contains("hunter2"), "{shown}");
}
