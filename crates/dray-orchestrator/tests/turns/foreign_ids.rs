//! Ids of another caller: every endpoint treats them as ids that do not exist, for another client, and for the same
//! client of another tenant on the same bus and store.

use bytes::Bytes;
use dray_http::RequestBuilder;
use dray_types::Secret;
use serde_json::{Value, json};

use crate::fixture::{TurnFixture, manifest};

const MODEL_SCRIPT: &str = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;
const FORM_TYPE: &str = "multipart/form-data; boundary=b";

/// A caller: the URL of a service and a key.
struct Client<'a> {
    fixture: &'a TurnFixture,
    url: &'a str,
    key: &'static str,
}

/// The ids of the objects of one client, by the names that templates of requests use.
type Ids = Vec<(&'static str, String)>;

impl Client<'_> {
    /// Sends `body`, JSON or a form; returns status, type of content and text.
    async fn send(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        let url = format!("{}/v1/{path}", self.url);
        let client = &self.fixture.client;
        let request = match method {
            "GET" => client.get(&url),
            "DELETE" => client.delete(&url),
            _ => client.post(&url),
        };
        let request = request.authorization("Bearer", &Secret::new(self.key));
        let response = with_body(request, body).send(&|_| ()).await.unwrap();
        let kind = response.header("content-type").unwrap_or_default();
        let (status, kind) = (response.status(), kind.to_owned());
        let text = response.bytes(1 << 20).await.unwrap();
        (status, kind, String::from_utf8(text.to_vec()).unwrap())
    }

    /// Sends a request that creates an object.
    async fn create(&self, path: &str, body: &str) -> Value {
        let (status, _, text) = self.send("POST", path, body).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Creates one object of each kind.
    async fn objects(&self) -> Ids {
        let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
        let file = self.create("files", &form("file", true)).await;
        let upload = json!({"bytes": 5, "filename": "a.txt", "mime_type": "text/plain", "purpose": "user_data"});
        let upload = id(&self.create("uploads", &upload.to_string()).await);
        let parts = format!("uploads/{upload}/parts");
        let part = self.create(&parts, &form("data", false)).await;
        let body = json!({"model": "agent", "input": "hi"});
        let response = self.create("responses", &body.to_string()).await;
        let body = json!({"model": "agent", "input": "hi", "background": true});
        let background = self.create("responses", &body.to_string()).await;
        let body = json!({"items": [{"role": "user", "content": "secret"}]});
        let conversation = id(&self.create("conversations", &body.to_string()).await);
        let items = format!("conversations/{conversation}/items");
        let entry = self.create(&items, &body.to_string()).await;
        vec![
            ("{file}", id(&file)),
            ("{upload}", upload),
            ("{part}", id(&part)),
            ("{response}", id(&response)),
            ("{item}", id(&response["output"][0])),
            ("{background}", id(&background)),
            ("{conversation}", conversation),
            ("{entry}", id(&entry["data"][0])),
        ]
    }
}

fn with_body(request: RequestBuilder, body: &str) -> RequestBuilder {
    let kind = match body.chars().next() {
        None => return request,
        Some('{') => "application/json",
        Some(_) => FORM_TYPE,
    };
    request.bytes(kind, Bytes::from(body.to_owned()))
}

/// A form with a small file.
fn form(name: &str, has_purpose: bool) -> String {
    let purpose = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n";
    let purpose = if has_purpose { purpose } else { "" };
    format!(
        "{purpose}--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a.txt\"\r\n\
         Content-Type: text/plain\r\n\r\nhello\r\n--b--\r\n"
    )
}

/// Every request that names an object by its id: method, path, body.
fn requests() -> Vec<(&'static str, String, String)> {
    let mut requests = requests_by_path();
    requests.extend(requests_by_body().map(|(path, body)| ("POST", path.to_owned(), body)));
    requests
}

/// Requests that name the object in their path, without a body.
fn requests_by_path() -> Vec<(&'static str, String, String)> {
    let mut requests: Vec<_> = [
        "GET files/{file}",
        "GET files/{file}/content",
        "GET containers/any/files/{file}/content",
        "DELETE files/{file}",
        "POST uploads/{upload}/cancel",
        "GET conversations/{conversation}",
        "GET conversations/{conversation}/items",
        "GET conversations/{conversation}/items?after={entry}",
        "GET conversations/{conversation}/items/{entry}",
        "DELETE conversations/{conversation}/items/{entry}",
        "DELETE conversations/{conversation}",
    ]
    .into_iter()
    .map(|line| {
        let (method, path) = line.split_once(' ').unwrap();
        (method, path.to_owned(), String::new())
    })
    .collect();
    for id in ["{response}", "{background}"] {
        for (method, rest) in [
            ("GET", ""),
            ("GET", "?stream=true&starting_after=1"),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ] {
            requests.push((method, format!("responses/{id}{rest}"), String::new()));
        }
    }
    requests
}

/// Paths and bodies of further requests.
fn requests_by_body() -> impl Iterator<Item = (&'static str, String)> {
    let entries = json!({"items": [{"role": "user", "content": "x"}]});
    let part = json!([{"type": "file", "file": {"file_id": "{file}"}}]);
    let chat = json!({"model": "agent", "messages": [{"role": "user", "content": part}]});
    let mut requests = vec![
        ("uploads/{upload}/parts", form("data", false)),
        (
            "uploads/{upload}/complete",
            json!({"part_ids": ["{part}"]}).to_string(),
        ),
        (
            "conversations/{conversation}",
            json!({"metadata": {"a": "b"}}).to_string(),
        ),
        ("conversations/{conversation}/items", entries.to_string()),
        ("chat/completions", chat.to_string()),
    ];
    let file = |part: Value| json!({"input": [{"role": "user", "content": [part]}]});
    let reference = |id: &str| json!({"input": [{"type": "item_reference", "id": id}]});
    for body in [
        json!({"input": "x", "previous_response_id": "{response}"}),
        json!({"input": "x", "previous_response_id": "{background}"}),
        json!({"input": "x", "conversation": "{conversation}"}),
        json!({"input": "x", "conversation": {"id": "{conversation}"}}),
        reference("{item}"),
        reference("{entry}"),
        file(json!({"type": "input_file", "file_id": "{file}"})),
        file(json!({"type": "input_image", "file_id": "{file}"})),
    ] {
        let mut body = body;
        body["model"] = json!("agent");
        requests.push(("responses", body.to_string()));
        // Files are read when the response runs, and an estimate does not read them.
        if !body.to_string().contains("{file}") {
            requests.push(("responses/input_tokens", body.to_string()));
            let mut background = body.clone();
            background["background"] = json!(true);
            requests.push(("responses", background.to_string()));
        }
        body["stream"] = json!(true);
        requests.push(("responses", body.to_string()));
    }
    requests.into_iter()
}

fn fill_template(template: &str, ids: &Ids) -> String {
    let filled = ids.iter().fold(template.to_owned(), |text, (name, id)| {
        text.replace(name, id)
    });
    assert!(
        !filled.contains("{file") && !filled.contains("{re"),
        "{filled}"
    );
    filled
}

/// Ids of the same form that do not exist.
fn absent_ids(ids: &Ids) -> Ids {
    let other = |id: &str| {
        let (start, end) = id.split_at(id.len() - 12);
        let end = end
            .chars()
            .map(|digit| if digit == '0' { '1' } else { '0' });
        format!("{start}{}", end.collect::<String>())
    };
    ids.iter().map(|(name, id)| (*name, other(id))).collect()
}

/// A response with names in place of the ids.
fn anonymous(text: &str, ids: &Ids) -> String {
    ids.iter()
        .fold(text.to_owned(), |text, (name, id)| text.replace(id, name))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_of_another_caller_or_tenant_does_not_differ_from_one_that_does_not_exist() {
    let fixture = TurnFixture::with(&manifest(json!([])), MODEL_SCRIPT, |config| {
        config.clients = [("one", "k-1"), ("two", "k-2")]
            .map(|(name, key)| (name.to_owned(), Secret::new(key)))
            .into();
    })
    .await;
    let elsewhere = fixture
        .start_replica_with(|config| config.tenant = "other".to_owned())
        .await;
    let client = |url, key| Client {
        fixture: &fixture,
        url,
        key,
    };
    let owner = client(&fixture.url, "k-1");
    let ids = owner.objects().await;
    let missing = absent_ids(&ids);
    for (name, stranger) in [
        ("another client", client(&fixture.url, "k-2")),
        ("the client in another tenant", client(&elsewhere, "k-1")),
    ] {
        for (method, path, body) in requests() {
            let send = async |ids: &Ids| {
                let (path, body) = (fill_template(&path, ids), fill_template(&body, ids));
                let (status, kind, text) = stranger.send(method, &path, &body).await;
                (status, kind, anonymous(&text, ids))
            };
            let (foreign, unknown) = (send(&ids).await, send(&missing).await);
            assert_eq!(foreign, unknown, "{name}: {method} {path} {body}");
            assert_eq!(
                foreign.0, 404,
                "{name}: {method} {path} {body}: {foreign:?}"
            );
        }
    }
    // None of these requests changed anything of the owner.
    for path in [
        "files/{file}/content",
        "responses/{response}",
        "responses/{background}",
        "conversations/{conversation}/items/{entry}",
    ] {
        let (status, _, text) = owner.send("GET", &fill_template(path, &ids), "").await;
        assert_eq!(status, 200, "{path}: {text}");
    }
    let body = fill_template(&json!({"part_ids": ["{part}"]}).to_string(), &ids);
    let upload = fill_template("uploads/{upload}/complete", &ids);
    assert_eq!(owner.create(&upload, &body).await["status"], "completed");
}
