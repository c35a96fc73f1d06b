//! (f) Files from and to a host.

use tokio::process::Command;

use super::docker::RoundCounter;
use super::fixture::{TransferFixture, path_text, run_command, to_comparison, write_random_file};
use crate::harness::side_by_side;
use crate::print_line;

fn ssh_sandbox(fixture: &TransferFixture<'_>) -> anyhow::Result<String> {
    let sshd = fixture.sshd;
    Ok(format!(
        "ssh:{}@127.0.0.1:{}{}",
        sshd.user(),
        sshd.port(),
        path_text(&sshd.home())?
    ))
}

/// Copies from the host, compared with `scp` with a shared master.
pub(super) async fn measure_get(
    fixture: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = ssh_sandbox(fixture)?;
    let host_directory = fixture.sshd.home().join("out");
    std::fs::create_dir_all(&host_directory)?;
    for round in 0..=rounds {
        write_random_file(&host_directory.join(round.to_string()), size)?;
    }
    TransferFixture::settle().await;
    let path = path_text(&host_directory)?;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let target = path_text(&fixture.local("scp"))?;
    let times = side_by_side(
        rounds,
        || {
            let source = format!("127.0.0.1:{path}/{}", theirs.next());
            run_command(scp_command(fixture, &source, &target))
        },
        || {
            let path = format!("{path}/{}", ours.next());
            let sandbox = &sandbox;
            async move { fixture.get(sandbox, &path, size).await }
        },
    )
    .await?;
    std::fs::remove_dir_all(&host_directory)?;
    let name = format!("(f) get {size} B over SSH, {}", fixture.proof.label());
    print_line(&to_comparison(name, "scp, shared master", times).to_string());
    Ok(())
}

/// Copies to the host, compared with `scp` with a shared master.
pub(super) async fn measure_put(
    fixture: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = ssh_sandbox(fixture)?;
    let source = fixture.create_file("ssh-in", size)?;
    let claim = fixture.store(&source).await?;
    let source = path_text(&source)?;
    let host_directory = fixture.sshd.home().join("in");
    std::fs::create_dir_all(&host_directory)?;
    // This process creates the directory, but the user that logs in writes to it.
    std::os::unix::fs::chown(&host_directory, home_owner(fixture)?, None)?;
    let directory = path_text(&host_directory)?;
    let times = side_by_side(
        rounds,
        || {
            let target = format!("127.0.0.1:{directory}/cp-{}", fixture.next());
            run_command(scp_command(fixture, &source, &target))
        },
        || fixture.put(&sandbox, &directory, claim.clone()),
    )
    .await?;
    std::fs::remove_dir_all(&host_directory)?;
    let name = format!("(f) put {size} B over SSH, {}", fixture.proof.label());
    print_line(&to_comparison(name, "scp, shared master", times).to_string());
    Ok(())
}

/// The owner of the home directory of the user who logs in.
fn home_owner(fixture: &TransferFixture<'_>) -> anyhow::Result<Option<u32>> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(Some(std::fs::metadata(fixture.sshd.home())?.uid()))
}

fn scp_command(fixture: &TransferFixture<'_>, from: &str, to: &str) -> Command {
    let sshd = fixture.sshd;
    let control = fixture.local("scp-master");
    let mut command = Command::new("scp");
    command
        .args(["-q", "-F", "/dev/null", "-P", &sshd.port().to_string()])
        .args(["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"])
        .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"])
        .args(["-o", "ControlMaster=auto", "-o", "ControlPersist=60"])
        .args(["-o", &format!("ControlPath={}", control.display())])
        .args(["-o", &format!("User={}", sshd.user())])
        .arg("-i")
        .arg(sshd.key())
        .args([from, to]);
    command
}
