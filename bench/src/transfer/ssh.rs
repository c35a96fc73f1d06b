//! (f) Files from and to a host.

use tokio::process::Command;

use super::docker::RoundCounter;
use super::world::{TransferFixture, comparison, make, run, text};
use crate::harness::side_by_side;
use crate::say;

fn sandbox(world: &TransferFixture<'_>) -> anyhow::Result<String> {
    let sshd = world.sshd;
    Ok(format!(
        "ssh:{}@127.0.0.1:{}{}",
        sshd.user(),
        sshd.port(),
        text(&sshd.home())?
    ))
}

/// From, against `scp` with a shared master.
pub(super) async fn get(
    world: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = sandbox(world)?;
    let folder = world.sshd.home().join("out");
    std::fs::create_dir_all(&folder)?;
    for round in 0..=rounds {
        make(&folder.join(round.to_string()), size)?;
    }
    TransferFixture::settle().await;
    let path = text(&folder)?;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let target = text(&world.local("scp"))?;
    let times = side_by_side(
        rounds,
        || {
            let source = format!("127.0.0.1:{path}/{}", theirs.next());
            run(scp(world, &source, &target))
        },
        || {
            let path = format!("{path}/{}", ours.next());
            let sandbox = &sandbox;
            async move { world.get(sandbox, &path, size).await }
        },
    )
    .await?;
    std::fs::remove_dir_all(&folder)?;
    let name = format!("(f) get {size} B over SSH, {}", world.proof.words());
    say(&comparison(name, "scp, shared master", times).to_string());
    Ok(())
}

/// To, against `scp` with a shared master.
pub(super) async fn put(
    world: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = sandbox(world)?;
    let source = world.make("ssh-in", size)?;
    let claim = world.store(&source).await?;
    let source = text(&source)?;
    let folder = world.sshd.home().join("in");
    std::fs::create_dir_all(&folder)?;
    std::os::unix::fs::chown(&folder, owner(world)?, None)?;
    let directory = text(&folder)?;
    let times = side_by_side(
        rounds,
        || {
            let target = format!("127.0.0.1:{directory}/cp-{}", world.next());
            run(scp(world, &source, &target))
        },
        || world.put(&sandbox, &directory, claim.clone()),
    )
    .await?;
    std::fs::remove_dir_all(&folder)?;
    let name = format!("(f) put {size} B over SSH, {}", world.proof.words());
    say(&comparison(name, "scp, shared master", times).to_string());
    Ok(())
}

/// Who owns the home of the user that is logged in.
fn owner(world: &TransferFixture<'_>) -> anyhow::Result<Option<u32>> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(Some(std::fs::metadata(world.sshd.home())?.uid()))
}

fn scp(world: &TransferFixture<'_>, from: &str, to: &str) -> Command {
    let sshd = world.sshd;
    let control = world.local("scp-master");
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
