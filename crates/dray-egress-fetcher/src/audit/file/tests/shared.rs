//! A file to which several processes write.

use super::*;

#[test]
fn two_processes_write_and_rotate_the_same_file_without_a_lost_line() {
    let fixture = FileFixture::new();
    let line = event_text(&event("one-00", "allow")).len() as u64 + 1;
    let settings = AuditFileSettings {
        max_bytes: 10 * line,
        max_files: 100,
        ..fixture.settings()
    };
    let files = [
        ("one", fixture.open(&settings)),
        ("two", fixture.open(&settings)),
    ];
    thread::scope(|scope| {
        for (name, file) in &files {
            scope.spawn(move || {
                let file = file.as_ref().unwrap();
                for number in 0..90 {
                    record(file, &event(&format!("{name}-{number:02}"), "allow"));
                    // Each line alone, so that the two take turns.
                    let _ = file.flush().blocking_recv();
                }
            });
        }
    });
    let names = fs::read_dir(fixture.directory.path()).unwrap();
    let mut all: Vec<_> = names
        .flat_map(|entry| operations(&fixture, entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    all.sort_unstable();
    let expected: Vec<_> = ["one", "two"]
        .into_iter()
        .flat_map(|name| (0..90).map(move |number| format!("{name}-{number:02}")))
        .collect();
    assert_eq!(all, expected);
}

#[test]
fn the_torn_line_of_another_process_is_removed_before_the_next_line() {
    use std::io::Write as _;
    let fixture = FileFixture::new();
    let file = fixture.open(&fixture.settings()).unwrap();
    record(&file, &event("one", "allow"));
    let _ = file.flush().blocking_recv();
    let mut other = fs::OpenOptions::new();
    let mut other = other.append(true).open(&fixture.path).unwrap();
    other.write_all(b"{\"operation_id\": \"torn").unwrap();
    record(&file, &event("two", "allow"));
    let _ = file.flush().blocking_recv();
    assert_eq!(operations(&fixture, "audit.jsonl"), ["one", "two"]);
}

#[test]
fn a_file_that_an_operator_moved_away_is_created_again() {
    let fixture = FileFixture::new();
    let file = fixture.open(&fixture.settings()).unwrap();
    record(&file, &event("one", "allow"));
    let _ = file.flush().blocking_recv();
    fs::rename(&fixture.path, fixture.directory.path().join("moved")).unwrap();
    record(&file, &event("two", "allow"));
    let _ = file.flush().blocking_recv();
    assert_eq!(operations(&fixture, "moved"), ["one"]);
    assert_eq!(operations(&fixture, "audit.jsonl"), ["two"]);
}

#[test]
fn a_rotated_file_belongs_to_the_owner_of_the_one_before_or_the_rotation_fails() {
    let fixture = FileFixture::new();
    let line = |number: usize| format!("{{\"number\":{number}}}\n").into_bytes();
    let mut file = RotatedFile::open(&fixture.path, line(0).len() as u64, 3).unwrap();
    file.write_frame(&line(0)).unwrap();
    let own = fs::metadata(&fixture.path).unwrap();
    if own.uid() == 0 {
        // A command of root may run beside a service of another user.
        std::os::unix::fs::chown(&fixture.path, Some(65_534), Some(65_534)).unwrap();
        file.write_frame(&line(1)).unwrap();
        for name in ["audit.jsonl", "audit.jsonl.1"] {
            let rotated = fs::metadata(fixture.directory.path().join(name)).unwrap();
            let owner = (rotated.uid(), rotated.gid(), rotated.mode() & 0o777);
            assert_eq!(owner, (65_534, 65_534, 0o600), "{name}");
        }
        // The same holds for a new file after an operator moved the old one away.
        fs::remove_file(&fixture.path).unwrap();
        file.write_frame(&line(2)).unwrap();
        assert_eq!(fs::metadata(&fixture.path).unwrap().uid(), 65_534);
    } else {
        // Another user cannot give files away.
        let root = fs::metadata("/").unwrap();
        let next = fixture.directory.path().join("next");
        let error = create_private(&next, Some(&root)).unwrap_err();
        assert!(error.to_string().contains("user 0"), "{error}");
        assert!(!next.exists());
    }
}

#[test]
fn the_first_file_of_a_command_of_root_belongs_to_the_owner_of_the_directory() {
    let fixture = FileFixture::new();
    let is_root = fs::metadata(fixture.directory.path()).unwrap().uid() == 0;
    if is_root {
        // An operator makes the directory for the user of the service.
        std::os::unix::fs::chown(fixture.directory.path(), Some(65_534), Some(65_534)).unwrap();
    }
    let mut file = RotatedFile::open(&fixture.path, 1 << 20, 3).unwrap();
    file.write_frame(b"one\n").unwrap();
    let directory = fs::metadata(fixture.directory.path()).unwrap();
    let created = fs::metadata(&fixture.path).unwrap();
    assert_eq!(
        (created.uid(), created.mode() & 0o777),
        (directory.uid(), 0o600)
    );
    if is_root {
        use std::os::unix::process::CommandExt as _;
        let mut service = std::process::Command::new("sh");
        service.args(["-c", "echo two >> \"$1\"", "sh"]);
        let appended = service.arg(&fixture.path).uid(65_534).gid(65_534).status();
        assert!(appended.unwrap().success());
        assert_eq!(fs::read(&fixture.path).unwrap(), b"one\ntwo\n");
    }
}

#[test]
fn a_file_that_another_process_keeps_locked_ends_the_wait_of_a_start_and_of_a_write() {
    let fixture = FileFixture::new();
    let mut file = RotatedFile::open(&fixture.path, 1 << 20, 3).unwrap();
    let holder = File::open(&fixture.path).unwrap();
    holder.lock().unwrap();
    let written = file.with_lock(Duration::from_millis(5), |file| file.write_line(b"one\n"));
    let error = written.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("holds the lock"), "{error}");
    let error = RotatedFile::open(&fixture.path, 1 << 20, 3).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(holder);
    file.write_frame(b"two\n").unwrap();
    assert_eq!(fs::read(&fixture.path).unwrap(), b"two\n");
}
