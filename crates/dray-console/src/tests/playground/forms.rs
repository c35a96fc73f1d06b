//! Tests of which forms of the playground begin a turn: each once, and only with an orchestrator of the tenant.

use super::*;

#[tokio::test]
async fn an_orchestrator_of_another_tenant_is_not_used() {
    let playground = Playground::new().await;
    let (console, fake) = (&playground.console, &playground.fake);
    let login = console.log_in(ConsoleRole::Act).await;
    *fake.tenant.lock().unwrap() = Some("acme");
    let page = console.get("/playground", Some(&login)).await;
    assert!(page.body.contains("serves another tenant"), "{page:?}");
    let refused = playground
        .send_message("/playground", &login, "one", &[])
        .await;
    assert_eq!(refused.status, 501, "{refused:?}");
    assert!(fake.chats().is_empty());
    // A conversation that began before does not continue with it either.
    *fake.tenant.lock().unwrap() = Some("default");
    fake.expect_request().end();
    let path = playground.begin(&login, "two", &[]).await;
    console
        .wait_for(&path, &login, "data-ending=\"done\"")
        .await;
    *fake.tenant.lock().unwrap() = Some("acme");
    let refused = playground.send_message(&path, &login, "three", &[]).await;
    assert_eq!(refused.status, 501, "{refused:?}");
    assert_eq!(fake.chats().len(), 1);
}

#[tokio::test]
async fn every_agent_is_reached_where_there_are_more_than_a_list_offers() {
    let playground = Playground::new().await;
    let (console, fake) = (&playground.console, &playground.fake);
    let login = console.log_in(ConsoleRole::Act).await;
    *fake.further_agents.lock().unwrap() = 498;
    let page = console.get("/playground", Some(&login)).await;
    assert!(page.body.contains("<select name=\"agent\""), "{page:?}");
    assert_eq!(page.body.matches("<option").count(), 500);
    // A list of 1 MiB and more is read, too.
    *fake.further_agents.lock().unwrap() = 60_000;
    let page = console.get("/playground", Some(&login)).await;
    assert!(
        page.body.contains("There are 60002 agents"),
        "{}",
        page.head
    );
    assert_eq!(page.body.matches("<option").count(), 500);
    let named = [
        ("csrf", login.form_token.as_str()),
        ("operation", &OperationId::mint().to_string()),
        ("agent", "agent-59999"),
        ("message", "one"),
    ];
    fake.expect_request().end();
    let form = multipart_form(&named, &[]);
    let begun = console.post_multipart("/playground", &login, &form).await;
    let path = begun.header("location").unwrap();
    console.wait_for(path, &login, "data-ending=\"done\"").await;
    assert_eq!(fake.chats()[0]["model"], "agent-59999");
}

#[tokio::test]
async fn a_message_whose_form_is_sent_twice_is_one_turn() {
    let playground = Playground::new().await;
    let (console, fake) = (&playground.console, &playground.fake);
    let login = console.log_in(ConsoleRole::Act).await;
    let writer = fake.expect_request();
    let form = message_form(&login, &OperationId::mint(), "one", &[]);
    let begun = console.post_multipart("/playground", &login, &form).await;
    let repeated = console.post_multipart("/playground", &login, &form).await;
    assert_eq!(repeated.status, 303, "{repeated:?}");
    assert_eq!(repeated.header("location"), begun.header("location"));
    let path = begun.header("location").unwrap();
    writer.end();
    console.wait_for(path, &login, "data-ending=\"done\"").await;
    let writer = fake.expect_request();
    let form = message_form(&login, &OperationId::mint(), "two", &[]);
    for _ in 0..2 {
        let sent = console.post_multipart(path, &login, &form).await;
        assert_eq!(sent.status, 303, "{sent:?}");
    }
    writer.end();
    console.wait_for(path, &login, "data-ending=\"done\"").await;
    assert_eq!(fake.chats().len(), 2);
    let without_operation = [("csrf", login.form_token.as_str()), ("message", "three")];
    let without_operation = multipart_form(&without_operation, &[]);
    let refused = console
        .post_multipart(path, &login, &without_operation)
        .await;
    assert_eq!(refused.status, 400, "{refused:?}");
}
