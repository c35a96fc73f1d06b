//! Copies of directories whose listing is longer than the output that the channel of their sandbox carries.

use super::{CliHome, line};

#[test]
fn a_directory_whose_listing_is_cut_is_listed_in_parts_and_arrives() {
    let home = CliHome::new();
    let path = |name: &str| home.0.path().join(name);
    let long = "n".repeat(200);
    for directory in ["a", "b/deep", "b/other"] {
        let directory = path("tree").join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        for number in 0..8 {
            std::fs::write(directory.join(format!("{long}{number}")), "x").unwrap();
        }
    }
    let config = path("box.toml");
    let settings =
        "[sandbox-transfer.exec.box]\ncommand = [\"env\"]\nchannel = { longest_output = 8000 }\n";
    std::fs::write(&config, settings).unwrap();
    let source = format!("exec:box:{}", path("tree").display());
    let target = path("copy");
    let arguments = [
        "sandbox",
        "cp",
        source.as_str(),
        target.to_str().unwrap(),
        "--json",
        "--config",
        config.to_str().unwrap(),
    ];
    let output = home.run(&arguments);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(line(&output)["files"].as_array().unwrap().len(), 24);
    for directory in ["a", "b/deep", "b/other"] {
        let copied = std::fs::read_dir(target.join(directory)).unwrap();
        assert_eq!(copied.count(), 8, "{directory}");
    }
}
