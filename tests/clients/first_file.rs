//! `docs/first-file.md`, step by step: its commands run in a shell as a reader copies them, in a copy of the checkout.
//!
//! Two things differ from the page. Its directory `/tmp/drayage` and its port belong to the test, so that tests run
//! side by side. A replacement of `cargo` checks its arguments and puts the program under test where the build would
//! put it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support;

/// A fenced block of the page.
struct PageBlock {
    language: String,
    text: String,
    /// The path that the line before the block names, when the reader has to write the block into a file.
    file: Option<String>,
}

/// The reader's machine: a copy of the checkout and a directory in place of `/tmp/drayage`.
struct ReaderMachine {
    directory: tempfile::TempDir,
    blocks: std::vec::IntoIter<PageBlock>,
    /// Address of the running system.
    address: String,
}

/// The system of step 2, which ends with the test.
struct ForegroundSystem {
    process: Child,
    /// The pipe stays open, because a process that cannot write its messages ends.
    messages: Option<BufReader<ChildStderr>>,
}

impl ReaderMachine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let page = std::fs::read_to_string(support::root().join("docs/first-file.md")).unwrap();
        let machine = Self {
            directory,
            blocks: blocks_of(&page).into_iter(),
            address: String::new(),
        };
        machine.copy_clients();
        machine.install_cargo();
        machine
    }

    fn checkout(&self) -> PathBuf {
        self.directory.path().join("checkout")
    }

    /// The directory in place of `/tmp/drayage`.
    fn work_directory(&self) -> PathBuf {
        self.directory.path().join("drayage")
    }

    /// Copies the clients as a fresh checkout has them, without what tools create there.
    fn copy_clients(&self) {
        let list = support::stdout(
            Command::new("find")
                .args([
                    "clients",
                    "(",
                    "-name",
                    "node_modules",
                    "-o",
                    "-name",
                    "dist",
                    ")",
                ])
                .args(["-prune", "-o", "-type", "f", "-print"])
                .current_dir(support::root()),
        );
        for name in list.lines().filter(|name| !name.contains("__pycache__")) {
            let copy = self.checkout().join(name);
            std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
            std::fs::copy(support::root().join(name), copy).unwrap();
        }
    }

    /// Installs a `cargo` that accepts only the command of the page.
    fn install_cargo(&self) {
        let script = format!(
            "#!/bin/sh\nset -e\ntest \"$*\" = 'build --release --bin dray'\nmkdir -p target/release\nln -s '{}' target/release/dray\n",
            support::dray().display()
        );
        let programs = self.directory.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        let cargo = programs.join("cargo");
        std::fs::write(&cargo, script).unwrap();
        std::fs::set_permissions(cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The next block of the page, which must be in this language.
    #[track_caller]
    fn next_block(&mut self, language: &str) -> PageBlock {
        let block = self.blocks.next().expect("the page has another block");
        assert_eq!(block.language, language, "{}", block.text);
        block
    }

    /// A text of the page with the directory and the address of this test.
    fn adapt(&self, text: &str) -> String {
        assert!(
            !text.contains("/tmp/") || text.contains("/tmp/drayage"),
            "{text}"
        );
        text.replace("/tmp/drayage", &self.work_directory().display().to_string())
            .replace("127.0.0.1:50051", &self.address)
    }

    /// A shell in the checkout that runs these commands and ends at the first that fails.
    fn shell(&self, commands: &str) -> Command {
        let programs = self.directory.path().join("bin");
        let mut command = Command::new("bash");
        command
            .args(["-euc", &self.adapt(commands)])
            .current_dir(self.checkout())
            .env("PATH", prepend_path(&programs))
            // The clients must be those that the page installs.
            .env_remove("PYTHONPATH")
            .env_remove("NODE_PATH");
        command
    }

    /// Runs the next block of commands; returns what it printed.
    fn run(&mut self) -> String {
        let commands = self.next_block("sh").text;
        support::stdout(&mut self.shell(&commands))
    }

    /// Writes the next block into the file that the page names.
    fn write(&mut self, language: &str) {
        let block = self.next_block(language);
        let path = self.adapt(&block.file.expect("the page names the file"));
        std::fs::write(path, self.adapt(&block.text)).unwrap();
    }

    /// Runs the next block, whose command does not end, until the system prints that it is ready.
    fn start(&mut self) -> ForegroundSystem {
        self.address = "127.0.0.1:0".to_owned();
        let commands = self.next_block("sh").text;
        // The system takes the place of the shell, so that the test ends it with its process id.
        let commands = commands.replace("target/release/dray up", "exec target/release/dray up");
        let mut command = self.shell(&commands);
        command
            .env("HOME", self.directory.path())
            .env("DRAY_HTTP__LISTEN", "127.0.0.1:0")
            .env("DRAY_ORCHESTRATOR__LISTEN", "127.0.0.1:0")
            .env("DRAY_LIMITS__FREE_DISK_PERCENT", "0")
            .stderr(Stdio::piped());
        let mut system = ForegroundSystem {
            process: command.spawn().unwrap(),
            messages: None,
        };
        let stderr = system.process.stderr.take().unwrap();
        let messages = system.messages.insert(BufReader::new(stderr));
        self.address.clear();
        while self.address.is_empty() {
            let mut line = String::new();
            assert!(messages.read_line(&mut line).unwrap() > 0, "dray up ended");
            if let Some(rest) = line.strip_prefix("gRPC: ") {
                let address = rest.split_whitespace().next();
                address.unwrap().clone_into(&mut self.address);
            }
        }
        system
    }
}

impl Drop for ForegroundSystem {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the reader's shell has the same search path"
)]
fn prepend_path(programs: &Path) -> String {
    let search_path = std::env::var("PATH").unwrap();
    format!("{}:{search_path}", programs.display())
}

/// The fenced blocks of a page, each with the path that the line before it names.
fn blocks_of(page: &str) -> Vec<PageBlock> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    let mut previous_line = "";
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let file = previous_line
                .strip_prefix("Write `")
                .and_then(|rest| rest.split('`').next());
            blocks.push(PageBlock {
                language: language.to_owned(),
                text: text.join("\n"),
                file: file.map(str::to_owned),
            });
        } else if !line.is_empty() {
            previous_line = line;
        }
    }
    blocks
}

#[test]
fn the_commands_of_the_page_deliver_a_file_with_each_client() {
    let mut machine = ReaderMachine::new();
    machine.run();
    let _system = machine.start();
    for program in ["python", "js"] {
        machine.run();
        machine.write(program);
        let printed = machine.run();
        let expected = machine.next_block("text").text;
        assert_eq!(printed.trim_end(), machine.adapt(&expected));
    }
    assert!(machine.blocks.next().is_none(), "every block was used");
}
