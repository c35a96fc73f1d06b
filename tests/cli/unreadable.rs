//! Copies of directories that may be read and not searched: their names are known, and nothing else.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::{CliHome, line, started_by};

#[test]
fn a_directory_that_may_be_read_and_not_searched_is_named_and_the_rest_arrives() {
    let home = CliHome::new();
    let path = |name: &str| home.0.path().join(name);
    for directory in ["here", "box", "tree/closed"] {
        std::fs::create_dir_all(path(directory)).unwrap();
    }
    std::fs::write(path("tree/closed/lost.txt"), "lost").unwrap();
    std::fs::write(path("tree/file.txt"), "kept").unwrap();
    let allow = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path("tree/closed"), permissions).unwrap();
    };
    allow(0o400);
    // Root may search every directory, so the command runs without the capabilities for that.
    let starter: &[&str] = match std::fs::metadata("/proc/self").unwrap().uid() {
        0 => &["setpriv", "--bounding-set=-dac_override,-dac_read_search"],
        _ => &["env"],
    };
    let copy = |arguments: &[&str]| {
        let command = home.dray(&[&["sandbox"][..], arguments, &["--json"]].concat());
        let mut command = started_by(starter, &command);
        command.current_dir(path("here")).output().unwrap()
    };
    let target = format!("local:{}", path("box").display());
    let source = format!("local:{}:./tree", home.0.path().display());
    let put = copy(&["put", "../tree", &target, "."]);
    let copied = copy(&["cp", &source, "copy"]);
    allow(0o700);
    for (output, kept) in [(put, "box/tree/file.txt"), (copied, "here/copy/file.txt")] {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let failed = &line(&output)["failed"];
        assert_eq!(failed.as_array().unwrap().len(), 1, "{failed}");
        assert_eq!(failed[0]["fault"]["detail"], "permission_denied");
        assert_eq!(std::fs::read_to_string(path(kept)).unwrap(), "kept");
    }
}
