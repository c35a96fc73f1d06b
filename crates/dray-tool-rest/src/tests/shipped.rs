//! Tests of the tool sets that ship with the service: they can be built, and send valid requests to their public
//! services.

use dray_agent::layer::{EntryKind, built_in};
use serde_json::{Value, json};

use super::fixture::RestFixture;

/// A shipped set whose endpoints are at the fake server.
fn at(fixture: &RestFixture, name: &str) -> Value {
    let layers = built_in();
    let mut moved = layers.body(EntryKind::ToolSet, name).unwrap().to_string();
    for host in [
        "https://geocoding-api.open-meteo.com",
        "https://archive-api.open-meteo.com",
        "https://air-quality-api.open-meteo.com",
        "https://api.open-meteo.com",
        "https://api.zippopotam.us",
    ] {
        moved = moved.replace(host, &fixture.url());
    }
    assert!(!moved.contains("https://"), "{name} asks somebody unknown");
    serde_json::from_str(&moved).unwrap()
}

/// The set with one tool alone.
fn only(mut set: Value, tool: &str) -> Value {
    let tools = set["tools"].as_array_mut().unwrap();
    tools.retain(|declared| declared["open_ai_tool"]["function"]["name"] == tool);
    assert_eq!(tools.len(), 1, "{tool}");
    set
}

#[tokio::test]
async fn shipped_sets_are_built_without_an_issue() {
    let fixture = RestFixture::new([]).await;
    for (name, expected) in [
        (
            "weather",
            vec![
                "weather_find_place",
                "weather_forecast",
                "weather_history",
                "weather_air_quality",
            ],
        ),
        (
            "location",
            vec![
                "location_find_place",
                "location_postal_code",
                "location_elevation",
            ],
        ),
    ] {
        let built = fixture.build(at(&fixture, name));
        assert_eq!(built.issues, [], "{name}");
        let names: Vec<_> = built
            .tools
            .iter()
            .map(|tool| tool.declaration().name.clone())
            .collect();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn shipped_endpoints_get_defaults_and_constants() {
    let fixture = RestFixture::new([]).await;
    for (set, tool, arguments, path, parts) in [
        (
            "weather",
            "forecast",
            json!({"latitude": 38.7, "longitude": -9.1}),
            "/v1/forecast",
            vec![
                "latitude=38.7",
                "longitude=-9.1",
                "forecast_days=3",
                "temperature_unit=celsius",
                "timezone=auto",
                "current=temperature_2m%2C",
            ],
        ),
        (
            "weather",
            "history",
            json!({"latitude": 1, "longitude": 2, "start_date": "2026-01-01", "end_date": "2026-01-31"}),
            "/v1/archive",
            vec!["start_date=2026-01-01", "end_date=2026-01-31", "latitude=1"],
        ),
        (
            "location",
            "find_place",
            json!({"name": "São Paulo"}),
            "/v1/search",
            vec![
                "name=S%C3%A3o%20Paulo",
                "count=5",
                "language=en",
                "format=json",
            ],
        ),
        (
            "location",
            "postal_code",
            json!({"country": "pt", "postal_code": "1000-205"}),
            "/pt/1000-205",
            vec![""],
        ),
    ] {
        let ran = fixture.call(only(at(&fixture, set), tool), arguments).await;
        assert!(!ran.unwrap().failed, "{tool}");
        let request = fixture.last();
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("GET", path)
        );
        assert_eq!(request.body, "", "{tool}");
        for part in parts {
            assert!(
                request.query.contains(part),
                "{tool}: {part} in {}",
                request.query
            );
        }
    }
}
