//! Contents of messages that are neither text nor files: places, contacts, polls and dice.

use serde::Deserialize;
use serde_json::Number;

/// The content of a message that has no text; at most one field, except that a venue comes with its location.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct MessageContent {
    contact: Option<Contact>,
    location: Option<Location>,
    venue: Option<Venue>,
    poll: Option<Poll>,
    dice: Option<Dice>,
}

#[derive(Debug, Deserialize)]
struct Contact {
    #[serde(default)]
    phone_number: String,
    #[serde(default)]
    first_name: String,
    #[serde(default)]
    last_name: String,
}

#[derive(Debug, Deserialize)]
struct Location {
    latitude: Number,
    longitude: Number,
}

#[derive(Debug, Deserialize)]
struct Venue {
    #[serde(default)]
    title: String,
    #[serde(default)]
    address: String,
}

#[derive(Debug, Deserialize)]
struct Poll {
    question: String,
    #[serde(default)]
    options: Vec<PollOption>,
}

#[derive(Debug, Deserialize)]
struct PollOption {
    text: String,
}

#[derive(Debug, Deserialize)]
struct Dice {
    emoji: String,
    value: Number,
}

impl MessageContent {
    /// The content as text; `None` without one.
    pub(crate) fn into_text(self) -> Option<String> {
        if let Some(contact) = self.contact {
            let name = format!("{} {}", contact.first_name, contact.last_name);
            return Some(format!(
                "Contact: {}, {}",
                name.trim(),
                contact.phone_number
            ));
        }
        if let Some(location) = self.location {
            let place = format!("{}, {}", location.latitude, location.longitude);
            return Some(match self.venue {
                Some(venue) => format!("Location: {}, {}, {place}", venue.title, venue.address),
                None => format!("Location: {place}"),
            });
        }
        if let Some(poll) = self.poll {
            let mut lines = vec![format!("Poll: {}", poll.question)];
            let options = poll.options.into_iter();
            lines.extend(options.map(|option| format!("- {}", option.text)));
            return Some(lines.join("\n"));
        }
        let dice = self.dice?;
        Some(format!("{} {}", dice.emoji, dice.value))
    }
}
