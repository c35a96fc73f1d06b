//! Tests of the current time, with and without a zone.

use super::*;

#[tokio::test]
async fn the_time_is_in_utc_or_in_the_requested_zone() {
    let fixture = InternalFixture::new(json!({"features": {}}));
    let call_clock = |arguments: Value| fixture.call(clock::CLOCK_TOOL, arguments);
    for arguments in [
        json!({}),
        json!({"timezone": null}),
        json!({"timezone": " "}),
    ] {
        let result = call_clock(arguments).await.unwrap();
        assert_eq!(
            result.content,
            "2026-01-02T03:04:05.678+00:00 (UTC, source=default)"
        );
    }
    for (zone, expected) in [
        (
            "Europe/Berlin",
            "2026-01-02T04:04:05.678+01:00 (Europe/Berlin, source=request)",
        ),
        (
            "asia/kolkata",
            "2026-01-02T08:34:05.678+05:30 (Asia/Kolkata, source=request)",
        ),
        (
            "America/St_Johns",
            "2026-01-01T23:34:05.678-03:30 (America/St_Johns, source=request)",
        ),
        ("UTC", "2026-01-02T03:04:05.678+00:00 (UTC, source=request)"),
    ] {
        assert_eq!(
            call_clock(json!({ "timezone": zone }))
                .await
                .unwrap()
                .content,
            expected
        );
    }
    fixture.clock.advance(Duration::from_hours(24 * 181));
    let summer = call_clock(json!({"timezone": "Europe/Berlin"}))
        .await
        .unwrap();
    assert!(
        summer.content.starts_with("2026-07-02T05:04:05.678+02:00"),
        "{}",
        summer.content
    );
}

#[tokio::test]
async fn an_unknown_zone_fails_the_tool_and_a_wrong_type_is_an_invalid_parameter() {
    let fixture = InternalFixture::new(json!({"features": {}}));
    for zone in ["Nowhere/Land", "../../etc/passwd", "/etc/localtime"] {
        let failure = fixture
            .call(clock::CLOCK_TOOL, json!({ "timezone": zone }))
            .await
            .unwrap_err();
        assert!(
            matches!(&failure, ToolFailure::Failed(failed) if failed.text.contains(zone)),
            "{failure:?}"
        );
    }
    let failure = fixture
        .call(clock::CLOCK_TOOL, json!({"timezone": 1}))
        .await
        .unwrap_err();
    assert!(matches!(failure, ToolFailure::Parameter { name, .. } if name == "timezone"));
}
