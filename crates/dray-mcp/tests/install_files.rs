//! Permissions, links, directories and other programs that write the same file.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use dray_mcp::install::{
    Client, ClientDirectories, FileChange, InstallAction, InstallError, InstallOptions,
    InstallScope, OperatingSystem, ServerLaunch, install,
};

/// Commands that change one file at the same time.
const CONCURRENT_COMMANDS: usize = 20;

fn options(home: &Path) -> InstallOptions {
    InstallOptions {
        client: Client::ClaudeCode,
        scope: None,
        name: "drayage".to_owned(),
        server: ServerLaunch::Stdio {
            command: "/usr/bin/dray".to_owned(),
            args: vec!["mcp".to_owned()],
            env: BTreeMap::new(),
        },
        action: InstallAction::Install { replace: false },
        print_only: false,
        file: None,
        directories: ClientDirectories {
            home: home.to_owned(),
            current: home.to_owned(),
            config_home: None,
            app_data: None,
            system: OperatingSystem::Linux,
        },
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn the_mode_of_a_file_is_kept_and_no_other_file_remains() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".claude.json");
    fs::write(&path, "{\"a\": 1}").unwrap();
    set_mode(&path, 0o640);
    install(&options(home.path())).unwrap();
    assert_eq!(mode(&path), 0o640);
    assert_eq!(names(home.path()), [".claude.json"]);
}

#[test]
fn a_new_file_of_the_user_is_private_and_one_of_the_project_is_not() {
    let home = tempfile::tempdir().unwrap();
    install(&options(home.path())).unwrap();
    assert_eq!(mode(&home.path().join(".claude.json")), 0o600);
    let project = InstallOptions {
        scope: Some(InstallScope::Project),
        ..options(home.path())
    };
    install(&project).unwrap();
    // The umask of the tests lets the owner read and write.
    assert_eq!(mode(&home.path().join(".mcp.json")) & 0o600, 0o600);
}

#[test]
fn a_relative_file_is_one_of_the_current_directory() {
    let project = tempfile::tempdir().unwrap();
    let profile = InstallOptions {
        file: Some("profile/mcp.json".into()),
        ..options(project.path())
    };
    let report = install(&profile).unwrap();
    assert_eq!(report.path, project.path().join("profile/mcp.json"));
    assert!(report.path.exists());
}

#[test]
fn a_link_is_followed_and_stays_a_link() {
    let home = tempfile::tempdir().unwrap();
    let dotfiles = tempfile::tempdir().unwrap();
    let target = dotfiles.path().canonicalize().unwrap().join("claude.json");
    fs::write(&target, "{}\n").unwrap();
    let link = home.path().join(".claude.json");
    symlink(&target, &link).unwrap();
    let report = install(&options(home.path())).unwrap();
    assert_eq!((&report.path, &report.target), (&link, &target));
    assert!(report.to_string().contains("a link to"));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&target).unwrap().contains("drayage"));
    let remove = InstallOptions {
        action: InstallAction::Remove,
        ..options(home.path())
    };
    // A file behind a link is emptied and not deleted.
    assert_eq!(install(&remove).unwrap().change, FileChange::Removed);
    assert!(target.exists() && link.exists());
}

#[test]
fn a_link_to_nothing_and_a_directory_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".claude.json");
    symlink(home.path().join("missing"), &path).unwrap();
    assert!(matches!(
        install(&options(home.path())),
        Err(InstallError::BrokenLink { .. })
    ));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(
        install(&options(home.path())),
        Err(InstallError::NotAFile(_))
    ));
    assert_eq!(names(home.path()), [".claude.json"]);
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".claude.json");
    fs::write(&path, b"{\"a\": \"\xff\"}").unwrap();
    let message = install(&options(home.path())).unwrap_err().to_string();
    assert!(message.contains("byte 7 is not UTF-8"), "{message}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".claude.json");
    fs::write(&path, "{\"a\": 1}").unwrap();
    set_mode(home.path(), 0o500);
    // Permissions do not bind root, so it gets a directory that no user can write.
    let is_root = fs::metadata(home.path()).unwrap().uid() == 0;
    let file = is_root.then(|| "/proc/drayage/mcp.json".into());
    if is_root && !Path::new("/proc/self").exists() {
        return;
    }
    let refused = InstallOptions {
        file,
        ..options(home.path())
    };
    let error = install(&refused).unwrap_err();
    set_mode(home.path(), 0o700);
    assert!(matches!(error, InstallError::Write { .. }), "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\": 1}");
    assert_eq!(names(home.path()), [".claude.json"]);
}

#[test]
fn concurrent_commands_all_write_their_entries_and_lose_none() {
    for client in [
        Client::Cursor,
        Client::Codex,
        Client::Goose,
        Client::OpenCode,
    ] {
        let home = tempfile::tempdir().unwrap();
        let named = |number: usize| InstallOptions {
            client,
            name: format!("entry-{number}"),
            ..options(home.path())
        };
        let all = |action: InstallAction| {
            let barrier = Barrier::new(CONCURRENT_COMMANDS);
            thread::scope(|scope| {
                for number in 0..CONCURRENT_COMMANDS {
                    let options = InstallOptions {
                        action,
                        ..named(number)
                    };
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        install(&options).unwrap();
                    });
                }
            });
        };
        all(InstallAction::Install { replace: false });
        for number in 0..CONCURRENT_COMMANDS {
            let report = install(&named(number)).unwrap();
            assert_eq!(report.change, FileChange::Unchanged, "{client:?} {number}");
        }
        all(InstallAction::Remove);
        let report = install(&InstallOptions {
            action: InstallAction::Remove,
            ..named(0)
        })
        .unwrap();
        assert_eq!(report.change, FileChange::Absent, "{client:?}");
        assert!(!report.path.exists(), "{client:?}");
        // Neither locks nor temporary files stay behind.
        assert!(
            names(report.path.parent().unwrap()).is_empty(),
            "{client:?}"
        );
    }
}
