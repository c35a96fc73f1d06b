//! The content of messages as text: pressed buttons, choices of lists, places, contacts and orders.

use serde_json::Value;

/// The text of a message, or the caption of its file. `None` for kinds without content, such as reactions.
pub(super) fn message_text(kind: &str, content: &Value) -> Option<String> {
    let text = |pointer: &str| text_at(content, pointer);
    let message_text = match kind {
        "text" => text("/body").to_owned(),
        "image" | "video" | "audio" | "document" | "sticker" => text("/caption").to_owned(),
        // The quick reply of a template.
        "button" => text("/text").to_owned(),
        "interactive" => {
            let choice = content.get(text("/type")).unwrap_or(&Value::Null);
            let fields = ["/title", "/description", "/body", "/response_json"];
            joined(fields.map(|field| text_at(choice, field)), "\n")
        }
        "location" => {
            let number = |name: &str| content.get(name).map(Value::to_string);
            let place = number("latitude").zip(number("longitude"));
            let place = place.map(|(latitude, longitude)| format!("{latitude}, {longitude}"));
            let place = place.unwrap_or_default();
            let fields = [text("/name"), text("/address"), &place];
            format!("Location: {}", joined(fields, ", "))
        }
        "contacts" => lines(content, contact_line),
        "order" => {
            let items = content.get("product_items").unwrap_or(&Value::Null);
            joined([text("/text"), &lines(items, item_line)], "\n")
        }
        // WhatsApp names no content of these, but the person has written, and gets an answer.
        "unsupported" => "[a message of a kind that WhatsApp does not pass on]".to_owned(),
        _ => return None,
    };
    Some(message_text)
}

fn contact_line(contact: &Value) -> String {
    let list = |name: &str| contact.get(name).and_then(Value::as_array);
    let values = |name: &str, pointer: &'static str| {
        let entries = list(name).into_iter().flatten();
        entries.map(move |entry| text_at(entry, pointer))
    };
    let reachable = values("phones", "/phone").chain(values("emails", "/email"));
    let name = text_at(contact, "/name/formatted_name");
    format!(
        "Contact: {}",
        joined([name].into_iter().chain(reachable), ", ")
    )
}

fn item_line(item: &Value) -> String {
    let quantity = item.get("quantity").map(Value::to_string);
    let id = text_at(item, "/product_retailer_id");
    format!("Order: {} × {id}", quantity.unwrap_or_default())
}

fn lines(values: &Value, line: fn(&Value) -> String) -> String {
    let values = values.as_array().into_iter().flatten();
    values.map(line).collect::<Vec<_>>().join("\n")
}

/// The texts that are not empty.
fn joined<'a>(texts: impl IntoIterator<Item = &'a str>, separator: &str) -> String {
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join(separator)
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}
