//! Outlook messages (MS-OXMSG): a compound file with a stream for each property.

use std::path::Path;

use super::lzfu;
use super::message::{Address, AttachedFile, Body, MailMessage};
use super::properties::File;
use crate::container::Input;
use crate::formats::rtf::CodePage;
use crate::formats::text::source;
use crate::formats::{ConversionHint, rtf, web};
use crate::limits::{Budget, Failure};
use crate::markdown::Markdown;

/// Bytes before the fixed properties of the message.
const MESSAGE_HEADER: usize = 32;
/// Bytes before the fixed properties of a recipient or attachment.
const PART_HEADER: usize = 8;

// Properties (MS-OXPROPS).
const PID_TAG_SUBJECT: u16 = 0x0037;
const SUBMIT_TIME: u16 = 0x0039;
const RECIPIENT_TYPE: u16 = 0x0C15;
const SENDER_NAME: u16 = 0x0C1A;
const SENDER_ADDRESS: u16 = 0x0C1F;
const DISPLAY_CC: u16 = 0x0E03;
const DISPLAY_TO: u16 = 0x0E04;
const DELIVERY_TIME: u16 = 0x0E06;
const PID_TAG_BODY: u16 = 0x1000;
const RTF_COMPRESSED: u16 = 0x1009;
const PID_TAG_HTML: u16 = 0x1013;
const DISPLAY_NAME: u16 = 0x3001;
const EMAIL_ADDRESS: u16 = 0x3003;
const CREATION_TIME: u16 = 0x3007;
const PID_TAG_DATA: u16 = 0x3701;
const FILE_NAME: u16 = 0x3704;
const LONG_FILE_NAME: u16 = 0x3707;
const PATH_NAME: u16 = 0x3708;
const LONG_PATH_NAME: u16 = 0x370D;
const MIME_TAG: u16 = 0x370E;
const SMTP_ADDRESS: u16 = 0x39FE;
const INTERNET_CODE_PAGE: u16 = 0x3FDE;
const MESSAGE_CODE_PAGE: u16 = 0x3FFD;
const SENDER_SMTP: u16 = 0x5D01;

/// The number of the code page for UTF-16.
const UTF_16: u32 = 1200;

/// A message that Outlook saved; attachments are listed and not opened.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = std::rc::Rc::clone(out.budget());
    let mut file = File::open(input)?;
    let mut warnings = Vec::new();
    let message = read_message(&mut file, &mut warnings, &budget)?;
    message.write(out)?;
    for warning in warnings {
        out.warn(warning);
    }
    if out.is_empty() {
        return Err(Failure::NoText);
    }
    Ok(())
}

fn read_message(
    file: &mut File<'_>,
    warnings: &mut Vec<&'static str>,
    budget: &Budget,
) -> Result<MailMessage, Failure> {
    let root = Path::new("/");
    let fixed = file.fixed(root, MESSAGE_HEADER, budget)?;
    let pages = [MESSAGE_CODE_PAGE, INTERNET_CODE_PAGE].map(|id| fixed.number(id));
    // Strings of 8 bits are not in UTF-16, even if the message declares it.
    let page = pages.into_iter().flatten().find(|page| *page != UTF_16);
    if let Some(page) = page {
        file.page = CodePage::of_number(page);
    }
    let html_page = fixed.number(INTERNET_CODE_PAGE).or(page);
    let (to, cc) = read_recipients(file, budget)?;
    let mut sender = file.text(root, SENDER_SMTP, budget)?;
    // For senders within Exchange, `SENDER_ADDRESS` is an address of the directory and not a mail address.
    if sender.is_empty() {
        sender = file.text(root, SENDER_ADDRESS, budget)?;
    }
    let from = Address {
        name: file.text(root, SENDER_NAME, budget)?,
        address: smtp_address(sender),
    };
    let date = [SUBMIT_TIME, DELIVERY_TIME, CREATION_TIME]
        .into_iter()
        .find_map(|id| fixed.time(id));
    Ok(MailMessage {
        from: if from == Address::default() {
            Vec::new()
        } else {
            vec![from]
        },
        to: or_displayed(to, file.text(root, DISPLAY_TO, budget)?),
        cc: or_displayed(cc, file.text(root, DISPLAY_CC, budget)?),
        date: date.unwrap_or_default(),
        subject: file.text(root, PID_TAG_SUBJECT, budget)?,
        bodies: read_body(file, html_page, warnings, budget)?
            .into_iter()
            .collect(),
        attachments: read_attachments(file, budget)?,
    })
}

/// The plain body, otherwise the HTML, otherwise the compressed RTF or the HTML in it. Damaged RTF is a failure only if
/// the message has no other content.
fn read_body(
    file: &mut File<'_>,
    html_page: Option<u32>,
    warnings: &mut Vec<&'static str>,
    budget: &Budget,
) -> Result<Option<Body>, Failure> {
    let root = Path::new("/");
    let plain = Body::Plain(source::line_feeds(file.text(root, PID_TAG_BODY, budget)?));
    if !plain.is_blank() {
        return Ok(Some(plain));
    }
    let html = match file.binary(root, PID_TAG_HTML, budget)? {
        Some(bytes) => {
            let label = html_page.and_then(|page| CodePage::of_number(page).label());
            web::page_text(&bytes, label).into_owned()
        }
        None => file.text(root, PID_TAG_HTML, budget)?,
    };
    let html = Body::Html(source::line_feeds(html));
    if !html.is_blank() {
        return Ok(Some(html));
    }
    let Some(packed) = file.binary(root, RTF_COMPRESSED, budget)? else {
        return Ok(None);
    };
    match lzfu::unpack_rtf(&packed, budget) {
        Ok(rtf) => Ok(Some(match rtf::wrapped_html(&rtf) {
            Some(html) => Body::Html(source::line_feeds(html)),
            None => Body::Rtf(rtf),
        })),
        Err(Failure::Corrupt(_))
            if file.has_text(root, &[PID_TAG_SUBJECT, SENDER_NAME, DISPLAY_TO]) =>
        {
            warnings.push("the body of the message is damaged");
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// The recipients of the message (To) and of copies (Cc).
fn read_recipients(
    file: &mut File<'_>,
    budget: &Budget,
) -> Result<(Vec<Address>, Vec<Address>), Failure> {
    let (mut to, mut cc) = (Vec::new(), Vec::new());
    for storage in file.storages("__recip_version1.0_", budget) {
        budget.element()?;
        let mut address = file.text(&storage, SMTP_ADDRESS, budget)?;
        if address.is_empty() {
            address = file.text(&storage, EMAIL_ADDRESS, budget)?;
        }
        let recipient = Address {
            name: file.text(&storage, DISPLAY_NAME, budget)?,
            address: smtp_address(address),
        };
        match file
            .fixed(&storage, PART_HEADER, budget)?
            .number(RECIPIENT_TYPE)
        {
            Some(2) => cc.push(recipient),
            // Blind copies are hidden.
            Some(3) => {}
            _ => to.push(recipient),
        }
    }
    Ok((to, cc))
}

/// The line of recipients that the sending program displayed, for messages that list no recipients.
fn or_displayed(listed: Vec<Address>, displayed: String) -> Vec<Address> {
    let displayed = Address {
        name: displayed,
        address: String::new(),
    };
    if listed.is_empty() && !displayed.name.trim().is_empty() {
        vec![displayed]
    } else {
        listed
    }
}

/// Addresses within one organisation's directory have no meaning outside of it.
fn smtp_address(address: String) -> String {
    if address.contains('@') {
        address
    } else {
        String::new()
    }
}

/// Names, types and sizes. An attached message is a storage, which has no size.
fn read_attachments(file: &mut File<'_>, budget: &Budget) -> Result<Vec<AttachedFile>, Failure> {
    let mut attachments = Vec::new();
    for storage in file.storages("__attach_version1.0_", budget) {
        budget.element()?;
        let mut name = String::new();
        let paths = [LONG_PATH_NAME, PATH_NAME];
        for id in [LONG_FILE_NAME, FILE_NAME, DISPLAY_NAME]
            .into_iter()
            .chain(paths)
        {
            if name.is_empty() {
                name = file.text(&storage, id, budget)?;
            }
        }
        attachments.push(AttachedFile {
            name,
            mime: file.text(&storage, MIME_TAG, budget)?,
            size: file.size(&storage, PID_TAG_DATA),
        });
    }
    Ok(attachments)
}

#[cfg(test)]
mod tests;
