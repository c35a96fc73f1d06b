//! Cases of publishing by renaming (sandbox-transfer R-13).

use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use futures_util::future::join;

use super::CaseContext;
use super::expect::expect_error;

pub(super) async fn a_file_is_renamed(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.rename)?;
    let (from, to) = (context.put("from", b"moved").await?, context.path("to")?);
    for replace in [false, true] {
        context.sandbox.rename(&from, &to, replace).await?;
        expect_bytes("moved", &context.read(&to).await?, b"moved")?;
        let old_name_stat = context.sandbox.stat(&from, Follow::No).await;
        expect_error("the old name", old_name_stat, &[ErrorKind::NotFound])?;
        context.sandbox.rename(&to, &from, replace).await?;
        let missing = context.sandbox.rename(&to, &from, replace).await;
        expect_error(
            "renaming a missing file",
            missing,
            &[ErrorKind::NotFound, ErrorKind::Exists],
        )?;
        expect_bytes("kept", &context.read(&from).await?, b"moved")?;
    }
    Ok(())
}

pub(super) async fn an_existing_target_is_kept(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.rename)?;
    let from = context.put("from", b"new").await?;
    let to = context.put("to", b"old").await?;
    let renamed = context.sandbox.rename(&from, &to, false).await;
    expect_error("over a file", renamed, &[ErrorKind::Exists])?;
    expect_bytes("target", &context.read(&to).await?, b"old")?;
    expect_bytes("source", &context.read(&from).await?, b"new")?;
    let directory = context.path("directory")?;
    context.sandbox.make_directory(&directory).await?;
    for replace in [false, true] {
        let renamed = context.sandbox.rename(&from, &directory, replace).await;
        expect_error(
            "over a directory",
            renamed,
            &[ErrorKind::Exists, ErrorKind::IsDirectory],
        )?;
        expect_bytes("source", &context.read(&from).await?, b"new")?;
        let inside = context.sandbox.list(&directory, 1, 10).await?;
        expect_equal("inside the directory", inside.entries, vec![])?;
    }
    Ok(())
}

pub(super) async fn a_target_is_replaced_on_request(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.rename)?;
    let from = context.put("from", b"new").await?;
    let to = context.put("to", b"old and longer").await?;
    context.sandbox.rename(&from, &to, true).await?;
    expect_bytes("target", &context.read(&to).await?, b"new")?;
    let old_name_stat = context.sandbox.stat(&from, Follow::No).await;
    expect_error("the old name", old_name_stat, &[ErrorKind::NotFound])
}

pub(super) async fn one_of_two_renames_wins(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.rename)?;
    // Several rounds, because one round may miss a race.
    for round in 0..5 {
        let one = context.put(format!("one-{round}"), b"one").await?;
        let two = context.put(format!("two-{round}"), b"two").await?;
        let to = context.path(format!("to-{round}"))?;
        let (first, second) = join(
            context.sandbox.rename(&one, &to, false),
            context.sandbox.rename(&two, &to, false),
        )
        .await;
        expect_true(first.is_ok() != second.is_ok(), "not exactly one won")?;
        let (bytes, loser, left) = if first.is_ok() {
            (b"one", second, two)
        } else {
            (b"two", first, one)
        };
        expect_error("the loser", loser, &[ErrorKind::Exists])?;
        expect_bytes("the winner", &context.read(&to).await?, bytes)?;
        expect_true(
            context.sandbox.stat(&left, Follow::No).await.is_ok(),
            "the file of the loser is lost",
        )?;
    }
    Ok(())
}
