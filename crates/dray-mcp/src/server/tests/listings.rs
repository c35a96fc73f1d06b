//! The tool `list` with a service of an earlier version, which does not know offsets.

use super::*;

/// Entries of the directory.
const ENTRY_COUNT: usize = 7;

#[tokio::test]
async fn parts_of_a_service_without_offsets_have_every_entry_once() {
    let fixture = Box::pin(ServerFixture::new(ServerOptions::default())).await;
    let subject = call_subject::<v1::ListSandboxRequest>();
    let responding = fixture.bus.respond_to(&subject, "sandbox-transfer").await;
    let mut lists = responding.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(request) = lists.next().await {
            let limit = request.decode::<v1::ListSandboxRequest>().unwrap().limit as usize;
            let entries = (0..ENTRY_COUNT.min(limit)).map(|number| v1::SandboxEntry {
                path: format!("/work/f{number}").into_bytes(),
                ..v1::SandboxEntry::default()
            });
            let reply = v1::ListSandboxReply {
                entries: entries.collect(),
                truncated: limit < ENTRY_COUNT,
                ..v1::ListSandboxReply::default()
            };
            request.answer(Ok(reply)).await;
        }
    });
    let mut names = Vec::new();
    let mut arguments = json!({"path": "sandbox:.", "limit": 3});
    while !arguments.is_null() {
        let result = fixture.call("list", arguments).await;
        let part = result.structured_content.unwrap();
        let entries = part["entries"].as_array().unwrap().iter();
        names.extend(entries.map(|entry| entry["name"].as_str().unwrap().to_owned()));
        assert!(names.len() <= ENTRY_COUNT, "{names:?}");
        arguments = part["next"]["arguments"].clone();
    }
    let expected: Vec<_> = (0..ENTRY_COUNT)
        .map(|number| format!("f{number}"))
        .collect();
    assert_eq!(names, expected);
}
