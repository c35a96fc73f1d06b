//! Running instances and their identity.

use async_trait::async_trait;
use dray_sandbox::{Error, ErrorKind};
use dray_sandbox_exec::{Exec as _, IncarnationGuard, LocalExec};
use serde::Deserialize;

/// Most bytes of a list of instances.
const MAX_LIST_BYTES: usize = 4 << 20;

/// A running instance, as `instance list --json` prints it; other fields are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Instance {
    #[serde(rename = "instance")]
    pub(crate) name: String,
    pub(crate) pid: u32,
}

#[derive(Deserialize)]
struct InstanceList {
    #[serde(default)]
    instances: Vec<Instance>,
}

/// Checks a name of an instance, which becomes an argument and a part of a URL.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let has_allowed_bytes = name.bytes().all(is_allowed) && !name.starts_with(['.', '-']);
    if has_allowed_bytes && !name.is_empty() && name.len() <= 255 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidName,
        "the name of an instance has only letters, digits, `_`, `.` and `-`",
    ))
}

/// Lists the running instances of this user.
pub(crate) async fn list(exec: &LocalExec, program: &str) -> Result<Vec<Instance>, Error> {
    let words = [program, "instance", "list", "--json"];
    let argv = words.map(|word| word.as_bytes().to_vec()).to_vec();
    let unavailable = |error: Error| {
        Error::new(ErrorKind::Unavailable, "instances cannot be listed").caused_by(error)
    };
    let running = exec.run(argv, None).await.map_err(unavailable)?;
    let output = running
        .stdout
        .read_all(MAX_LIST_BYTES)
        .await
        .map_err(unavailable)?;
    let exit = running.end.await.map_err(unavailable)?;
    if exit.status != 0 {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "instance list, status {}: {}",
                exit.status,
                exit.stderr.trim()
            ),
        ));
    }
    let listed: InstanceList = serde_json::from_slice(&output)
        .map_err(|error| Error::new(ErrorKind::Protocol, "not a list").caused_by(error))?;
    Ok(listed.instances)
}

impl Instance {
    /// The identity of the instance among all that had this name: id and start time of its first process.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SandboxGone`] if that process has ended.
    pub(crate) async fn incarnation(&self) -> Result<String, Error> {
        let pid = self.pid;
        // Instances run as processes of this host, under this user, so no command of the program is needed.
        let stat = tokio::fs::read_to_string(format!("/proc/{pid}/stat")).await;
        let stat = stat.map_err(|error| {
            Error::new(ErrorKind::SandboxGone, "its first process has ended").caused_by(error)
        })?;
        let start_ticks = start_ticks(&stat)
            .ok_or_else(|| Error::new(ErrorKind::SandboxGone, "its first process is dead"))?;
        Ok(format!("{pid}-{start_ticks}"))
    }
}

/// The start time of a process in clock ticks since the boot of the host (`proc(5)`, field 22); `None` for a dead one.
fn start_ticks(stat: &str) -> Option<u64> {
    // The second field is the name of the program and may hold blanks and brackets, so the last bracket counts.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    // A zombie keeps its number and its start until its parent has waited for it.
    if state.starts_with(['Z', 'X']) {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Checks before every command that the instance that was opened still runs.
#[derive(Debug)]
pub(crate) struct SameInstance {
    instance: Instance,
    incarnation: String,
}

impl SameInstance {
    pub(crate) fn new(instance: &Instance, incarnation: &str) -> Self {
        Self {
            instance: instance.clone(),
            incarnation: incarnation.to_owned(),
        }
    }
}

#[async_trait]
impl IncarnationGuard for SameInstance {
    async fn check(&self) -> Result<(), Error> {
        if self.instance.incarnation().await? == self.incarnation {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::SandboxGone,
            "another instance has the name now",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_instances_is_read_and_unknown_fields_are_ignored() {
        let text = r#"{"instances":[{"instance":"box","pid":7,"img":"/a.sif","ip":"","logErrPath":"/e"}]}"#;
        let listed: InstanceList = serde_json::from_str(text).unwrap();
        let expected = Instance {
            name: "box".to_owned(),
            pid: 7,
        };
        assert_eq!(listed.instances, [expected]);
        let none: InstanceList = serde_json::from_str("{}").unwrap();
        assert!(none.instances.is_empty());
    }

    #[test]
    fn the_start_time_is_read_after_a_program_name_with_brackets() {
        let rest = "1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        assert_eq!(start_ticks(&format!("7 (a) b) S {rest}")), Some(4711));
        assert_eq!(start_ticks(&format!("7 (a) Z {rest}")), None);
        assert_eq!(start_ticks("7 (a) S 1"), None);
        assert_eq!(start_ticks(""), None);
    }

    #[test]
    fn names_that_could_be_options_or_paths_are_refused() {
        for name in ["box", "a.b_c-1"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "-x", "..", ".", "a/b", "a b", "a*", &"x".repeat(256)] {
            assert_eq!(check_name(name).unwrap_err().kind(), ErrorKind::InvalidName);
        }
    }
}
