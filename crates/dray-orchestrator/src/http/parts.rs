//! Parts of messages of `OpenAI`'s API that are files: they become attachments, which the conversation's tools can use.
//!
//! Pictures and sound stay parts of the message as well, in their place, for models that see and hear. Documents do
//! not: few models take them, and the agent has tools that read them. The result of a function that the client called
//! stays text, as models require; its pictures follow it in a message of the user.

use dray_agent::failure::RequestFailure;
use dray_agent::message::{Attachment, Content, Message, Role};
use dray_dial::decode_data_url;
use dray_dial::origin::{LoadTarget, classify_reference};
use dray_media_type::type_of_name;
use serde_json::{Map, Value};

use super::plain_request::unsupported_failure;

/// Field of an attachment whose content is also a part of its message: the model gets it from there.
pub(crate) const PART_FIELD: &str = "part";
/// Field of an attachment that is a file of `/v1/files`: its id, and the place in the request that names it. The turn
/// replaces it by the file.
pub(crate) const FILE_ID_FIELD: &str = "dray_file";

/// Field of an attachment in the result of a function that the client called: the model sees its picture.
pub(crate) const RESULT_FIELD: &str = "result";

/// Field of a picture: how closely the model looks at it (`OpenAI`, "Images and vision").
pub(crate) const DETAIL_FIELD: &str = "detail";

/// Adds the files in the parts of a message to its attachments. `index` is its place in the request. With `has_dial`,
/// pictures may be files of DIAL (`files/…`).
///
/// # Errors
///
/// 400 for a part that is unknown or incomplete.
pub(super) fn attach_parts(
    index: usize,
    message: &mut Message,
    has_dial: bool,
) -> Result<(), RequestFailure> {
    let Some(Content::Parts(parts)) = &mut message.content else {
        return Ok(());
    };
    let mut attachments = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let path = format!("messages.{index}.content.{number}");
        let attachment = part_attachment(&path, message.role, part, has_dial)?;
        attachments.extend(attachment);
    }
    let is_result = message.role == Role::Tool;
    parts
        .retain(|part| part_kind(part) != "file" && !(is_result && part_kind(part) == "image_url"));
    if is_result {
        for attachment in &mut attachments {
            let mark = (RESULT_FIELD.to_owned(), Value::Bool(true));
            attachment.rest.extend([mark]);
        }
    }
    if !attachments.is_empty() {
        let custom = message.custom_content.get_or_insert_default();
        custom
            .attachments
            .get_or_insert_default()
            .append(&mut attachments);
    }
    Ok(())
}

fn part_kind(part: &Map<String, Value>) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// The file in a part; `None` for a text part.
fn part_attachment(
    path: &str,
    role: Role,
    part: &Map<String, Value>,
    has_dial: bool,
) -> Result<Option<Attachment>, RequestFailure> {
    let kind = part_kind(part);
    let text = |holder: &str, name: &str| {
        let holder = part.get(holder)?;
        holder.get(name)?.as_str().filter(|text| !text.is_empty())
    };
    let missing = |name: &str| {
        let message = format!("The part has no '{name}'.");
        RequestFailure::of_parameter(format!("{path}.{name}"), "invalid_messages", message)
    };
    match (kind, role) {
        ("text", _) => match part.get("text") {
            Some(Value::String(_)) => Ok(None),
            _ => Err(missing("text")),
        },
        ("refusal", Role::Assistant) => Ok(None),
        ("image_url", Role::User | Role::Tool) => {
            let url = text("image_url", "url").ok_or_else(|| missing("image_url.url"))?;
            if !(has_dial && is_dial_path(url)) {
                check_image_url(path, url)?;
            }
            if role == Role::Tool {
                return Ok(Some(result_picture(url, text("image_url", DETAIL_FIELD))));
            }
            Ok(Some(inline_attachment(image_type(url), url.to_owned())))
        }
        ("input_audio", Role::User) => {
            let data = text("input_audio", "data").ok_or_else(|| missing("input_audio.data"))?;
            let format =
                text("input_audio", "format").ok_or_else(|| missing("input_audio.format"))?;
            let media_type = audio_type(path, format)?;
            let url = format!("data:{media_type};base64,{data}");
            check_base64(format!("{path}.input_audio.data"), &url)?;
            Ok(Some(inline_attachment(media_type, url)))
        }
        ("file", Role::User | Role::Tool) => {
            if let Some(id) = text("file", "file_id") {
                let field = format!("{path}.file.file_id");
                let mut attachment = named_attachment(id, &field, text("file", "filename"));
                if let Some(detail) = text("file", DETAIL_FIELD) {
                    attachment
                        .rest
                        .insert(DETAIL_FIELD.to_owned(), Value::from(detail));
                }
                return Ok(Some(attachment));
            }
            let data = text("file", "file_data").ok_or_else(|| missing("file.file_data"))?;
            let (media_type, url) = document_url(data, text("file", "filename"));
            check_base64(format!("{path}.file.file_data"), &url)?;
            Ok(Some(Attachment {
                kind: (!media_type.is_empty()).then_some(media_type),
                title: text("file", "filename").map(str::to_owned),
                url: Some(url),
                ..Attachment::default()
            }))
        }
        _ => Err(unsupported_failure(
            format!("{path}.type"),
            "the part is not one of this role",
        )),
    }
}

/// Whether an address is the path of a file of DIAL.
fn is_dial_path(url: &str) -> bool {
    matches!(classify_reference(url, None), Ok(LoadTarget::Dial(_)))
}

/// Refuses an address that no model reads: the model's service would refuse it less clearly, or open it itself.
fn check_image_url(path: &str, url: &str) -> Result<(), RequestFailure> {
    let (scheme, rest) = url.trim_start().split_once(':').unwrap_or_default();
    let is_scheme = |name: &str| scheme.eq_ignore_ascii_case(name);
    let reason = if is_scheme("data") {
        match decode_data_url(url, u64::MAX) {
            Ok(_) => return Ok(()),
            Err(_) => "The 'data:' URL of the picture cannot be decoded.",
        }
    } else if rest.starts_with("//") && (is_scheme("https") || is_scheme("http")) {
        return Ok(());
    } else {
        "The URL of a picture begins with 'https://', 'http://' or 'data:'."
    };
    let param = format!("{path}.image_url.url");
    Err(RequestFailure::of_parameter(
        param,
        "invalid_image_url",
        reason,
    ))
}

/// An attachment whose content stays in the message.
fn inline_attachment(media_type: String, url: String) -> Attachment {
    let mut attachment = Attachment {
        kind: Some(media_type),
        url: Some(url),
        ..Attachment::default()
    };
    attachment
        .rest
        .insert(PART_FIELD.to_owned(), Value::Bool(true));
    attachment
}

/// An attachment for a picture in the result of a function.
fn result_picture(url: &str, detail: Option<&str>) -> Attachment {
    let mut attachment = Attachment {
        kind: Some(image_type(url)),
        url: Some(url.to_owned()),
        ..Attachment::default()
    };
    let detail = detail.map(|detail| (DETAIL_FIELD.to_owned(), Value::from(detail)));
    attachment.rest.extend(detail);
    attachment
}

/// An attachment for a file that the turn looks up by its id.
fn named_attachment(id: &str, field: &str, name: Option<&str>) -> Attachment {
    let mut attachment = Attachment {
        title: name.map(str::to_owned),
        ..Attachment::default()
    };
    let named = serde_json::json!({ "id": id, "param": field });
    attachment.rest.insert(FILE_ID_FIELD.to_owned(), named);
    attachment
}

/// The media type of a document and its `data:` URL. `data` is either that URL or the content alone in base64, as some
/// clients send it.
fn document_url(data: &str, name: Option<&str>) -> (String, String) {
    if let Some(media_type) = data_type(data) {
        return (media_type.to_owned(), data.to_owned());
    }
    let media_type = name.and_then(type_of_name);
    let media_type = media_type.unwrap_or("application/octet-stream");
    let url = format!("data:{media_type};base64,{data}");
    (media_type.to_owned(), url)
}

/// The media type of a format of sound. A format with other characters than a subtype has (RFC 6838, section 4.2) could
/// change the `data:` URL that it becomes a part of.
fn audio_type(path: &str, format: &str) -> Result<String, RequestFailure> {
    let is_subtype_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-.+_".contains(&byte);
    if format == "mp3" {
        Ok("audio/mpeg".to_owned())
    } else if format.bytes().all(is_subtype_byte) {
        Ok(format!("audio/{format}"))
    } else {
        Err(RequestFailure::of_parameter(
            format!("{path}.input_audio.format"),
            "invalid_audio",
            "The format is a name such as 'wav' or 'mp3'.",
        ))
    }
}

/// Refuses content that is not valid base64, which a tool or the model would otherwise report much later.
fn check_base64(param: String, url: &str) -> Result<(), RequestFailure> {
    match decode_data_url(url, u64::MAX) {
        Ok(_) => Ok(()),
        Err(_) => Err(RequestFailure::of_parameter(
            param,
            "invalid_base64",
            "The content is not valid base64.",
        )),
    }
}

/// The type of a picture, by its `data:` URL or the name in its address.
fn image_type(url: &str) -> String {
    let named = || {
        let path = url.split(['?', '#']).next().unwrap_or_default();
        type_of_name(path).filter(|media_type| media_type.starts_with("image/"))
    };
    let declared = data_type(url).or_else(named);
    // Most pictures on the web have this type; the model's service detects the type from the bytes.
    declared.unwrap_or("image/jpeg").to_owned()
}

/// The media type of a `data:` URL without its parameters.
fn data_type(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once(':')?;
    let media_type = rest.split([';', ',']).next();
    media_type.filter(|_| scheme.eq_ignore_ascii_case("data"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attach(role: &str, parts: &Value) -> Result<Message, RequestFailure> {
        let mut message = serde_json::from_value(json!({"role": role, "content": parts})).unwrap();
        attach_parts(0, &mut message, false)?;
        Ok(message)
    }

    #[test]
    fn pictures_sound_and_documents_are_files_of_the_message() {
        let parts = json!([
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ==", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.webp?x=1"}},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}},
            {"type": "file", "file": {"filename": "b.csv", "file_data": "YSxi"}},
            {"type": "file", "file": {"file_id": "file-1"}},
        ]);
        let message = attach("user", &parts).unwrap();
        let custom = serde_json::to_value(&message.custom_content).unwrap();
        assert_eq!(
            custom["attachments"],
            json!([
                {"type": "image/png", "url": "data:image/png;base64,QQ==", "part": true},
                {"type": "image/webp", "url": "https://example.org/a.webp?x=1", "part": true},
                {"type": "audio/mpeg", "url": "data:audio/mpeg;base64,QQ==", "part": true},
                {"type": "application/pdf", "title": "a.pdf", "url": "data:application/pdf;base64,QQ=="},
                {"type": "text/csv", "title": "b.csv", "url": "data:text/csv;base64,YSxi"},
                {"dray_file": {"id": "file-1", "param": "messages.0.content.6.file.file_id"}},
            ])
        );
        let remaining_parts = serde_json::to_value(&message.content).unwrap();
        assert_eq!(
            remaining_parts.as_array().unwrap()[..],
            parts.as_array().unwrap()[..4]
        );
    }

    #[test]
    fn pictures_and_documents_of_a_result_are_files_and_the_result_stays_text() {
        let parts = json!([
            {"type": "text", "text": "done"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ==", "detail": "low"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}},
            {"type": "file", "file": {"file_id": "file-1"}},
        ]);
        let message = attach("tool", &parts).unwrap();
        let custom = serde_json::to_value(&message.custom_content).unwrap();
        assert_eq!(
            custom["attachments"],
            json!([
                {"type": "image/png", "url": "data:image/png;base64,QQ==", "detail": "low", "result": true},
                {"type": "application/pdf", "title": "a.pdf", "url": "data:application/pdf;base64,QQ==", "result": true},
                {"dray_file": {"id": "file-1", "param": "messages.0.content.3.file.file_id"}, "result": true},
            ])
        );
        let remaining_parts = serde_json::to_value(&message.content).unwrap();
        assert_eq!(remaining_parts, json!([parts[0]]));
    }

    #[test]
    fn invalid_parts_are_refused_with_their_path_in_param() {
        for (role, part, param) in [
            (
                "user",
                json!({"type": "video"}),
                "messages.0.content.0.type",
            ),
            ("user", json!({"type": "text"}), "messages.0.content.0.text"),
            (
                "user",
                json!({"type": "image_url"}),
                "messages.0.content.0.image_url.url",
            ),
            (
                "user",
                json!({"type": "input_audio", "input_audio": {"data": "QQ=="}}),
                "messages.0.content.0.input_audio.format",
            ),
            (
                "user",
                json!({"type": "file", "file": {}}),
                "messages.0.content.0.file.file_data",
            ),
            (
                "assistant",
                json!({"type": "image_url", "image_url": {"url": "https://a.example/b"}}),
                "messages.0.content.0.type",
            ),
        ] {
            let failure = attach(role, &json!([part])).unwrap_err();
            assert_eq!(
                (failure.status, failure.param.as_deref()),
                (400, Some(param))
            );
        }
    }

    #[test]
    fn pictures_that_no_model_reads_are_refused() {
        let picture = |url: &str| json!([{"type": "image_url", "image_url": {"url": url}}]);
        for url in [
            "data:image/png;base64,!!!!",
            "data:image/png",
            "file:///etc/passwd",
            "ftp://a.example/b.png",
            "/etc/passwd",
            "https",
        ] {
            let failure = attach("user", &picture(url)).unwrap_err();
            assert_eq!(
                (failure.status, failure.param.as_deref()),
                (400, Some("messages.0.content.0.image_url.url")),
                "{url}"
            );
        }
        for url in [
            "HTTPS://a.example/b.png",
            "http://a.example/b",
            "DATA:image/png;base64,QQ",
            "data:image/svg+xml,%3Csvg/%3E",
        ] {
            attach("user", &picture(url)).unwrap();
        }
    }

    #[test]
    fn sound_and_documents_that_are_not_base64_are_refused() {
        let sound = |data: &str, format: &str| json!({"type": "input_audio", "input_audio": {"data": data, "format": format}});
        let document =
            |data: &str| json!({"type": "file", "file": {"filename": "a.pdf", "file_data": data}});
        for (part, field) in [
            (sound("QQ==!", "wav"), "input_audio.data"),
            (sound("QQ==", "wav,x"), "input_audio.format"),
            (
                document("data:application/pdf;base64,%%%"),
                "file.file_data",
            ),
            (document("data:application/pdf"), "file.file_data"),
            (document("https://a.example/b.pdf"), "file.file_data"),
            (document("QUJ\u{0}"), "file.file_data"),
        ] {
            let failure = attach("user", &json!([part])).unwrap_err();
            let param = format!("messages.0.content.0.{field}");
            assert_eq!(
                (failure.status, failure.param.as_deref()),
                (400, Some(&*param)),
                "{part}"
            );
        }
        for part in [
            sound("QQ", "wav"),
            sound("QQ==", "x-m4a"),
            document("data:application/pdf;base64,QQ=="),
            document("data:text/plain,a%20b"),
            document("DATA:application/pdf;base64,QQ=="),
        ] {
            attach("user", &json!([part])).unwrap();
        }
    }

    #[test]
    fn pictures_of_dial_are_accepted_where_dial_is_configured() {
        let attach_with = |url: &str, has_dial: bool| {
            let part = json!({"type": "image_url", "image_url": {"url": url}});
            let message = json!({"role": "user", "content": [part]});
            attach_parts(0, &mut serde_json::from_value(message).unwrap(), has_dial)
        };
        for url in ["files/B/a.png", "/files/B/dir/a%20b.png"] {
            attach_with(url, true).unwrap();
            assert_eq!(attach_with(url, false).unwrap_err().status, 400, "{url}");
        }
        for url in ["files/B/../C/a.png", "/etc/passwd", "file:///etc/passwd"] {
            assert_eq!(attach_with(url, true).unwrap_err().status, 400, "{url}");
        }
    }
}
