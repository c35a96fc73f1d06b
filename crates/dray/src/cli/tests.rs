//! Where the arguments of commands are.

use std::path::Path;

use clap::CommandFactory as _;

use super::Cli;

/// Commands without a file of their own name in `cli/`, with the file that has their arguments.
const OTHER_FILES: [(&str, &str); 16] = [
    ("artifact", "../cli.rs"),
    ("classify", "read.rs"),
    ("completions", "../cli.rs"),
    ("config", "../cli.rs"),
    ("deliver", "delivery.rs"),
    ("demo", "../cli.rs"),
    ("events", "../cli.rs"),
    ("fetch", "../cli.rs"),
    ("healthcheck", "../cli.rs"),
    ("man", "../cli.rs"),
    ("receipts", "delivery.rs"),
    ("reference", "../cli.rs"),
    ("resend", "delivery.rs"),
    ("resolve", "../cli.rs"),
    ("send", "delivery.rs"),
    ("up", "../cli.rs"),
];

#[test]
fn the_arguments_of_every_command_are_in_a_file_with_its_name() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli");
    let command = Cli::command();
    let names: Vec<_> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    for name in &names {
        let own = format!("{name}.rs");
        let other = OTHER_FILES.iter().find(|(command, _)| command == name);
        let file = other.map_or(own.as_str(), |(_, file)| file);
        assert!(directory.join(file).exists(), "{name}: no file cli/{file}");
    }
    for (name, _) in OTHER_FILES {
        assert!(names.contains(&name), "no command has the name {name}");
        let own = directory.join(format!("{name}.rs"));
        assert!(!own.exists(), "{name} has a file of its own name");
    }
}
