//! Redirects of a robots.txt to another port of its host.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_redirect_of_a_robots_txt_to_another_port_is_judged_by_the_rules() {
    let rules = |text: &str| {
        let rules = RuleSet::parse(&[PolicyText::new("policy.toml", text)]);
        std::sync::Arc::new(rules.unwrap())
    };
    let deny = "[[deny]]\nname = \"plain\"\nports = [80]\n";
    let role = |fields: &str| {
        format!(
            "[[role]]\nname = \"all\"\n[[role.rule]]\nname = \"files\"\noutcome = \"allow\"\nrobots = \"obey\"\n\
             hosts = [\"files.example.org\"]\n{fields}"
        )
    };
    let ask = "[[role.rule]]\nname = \"others\"\noutcome = \"ask\"\n";
    for (policy, code, dialled) in [
        // The paths of the rule do not count for the file.
        (role("paths = [\"/private/**\"]\n"), "ok", 3),
        (format!("{deny}{}", role("")), "robots_denied", 1),
        (role("ports = [8080]\n"), "robots_denied", 1),
        (
            format!("{}{ask}", role("ports = [8080]\n")),
            "robots_denied",
            1,
        ),
    ] {
        let fixture = FetcherFixture::default();
        let redirect = "http://files.example.org/robots.txt";
        let server = ScriptedResponder::new(move |request: &ReceivedRequest| {
            if is_robots(request) {
                ResponseScript::redirect(301, redirect)
            } else {
                ResponseScript::ok("hello")
            }
        });
        fixture
            .fake_network
            .peer(PUBLIC_ADDRESS, 8080, FakePeer::Plain(server));
        fixture
            .fake_network
            .serve(PUBLIC_ADDRESS, ResponseScript::status(404));
        let fetcher = fixture.fetcher();
        fetcher.set_rules(rules(&policy));
        let fetched = run(
            &fetcher,
            &request("http://files.example.org:8080/private/a"),
        )
        .await;
        assert_eq!(fetched.code(), code, "{policy}");
        let addresses = fixture.fake_network.dialled();
        assert_eq!(addresses.len(), dialled, "{policy}: {addresses:?}");
    }
}
