//! Which files of a delivery a resend sends: the only place with this rule. Reports offer what `Resend` accepts.

use dray_platform::ErrorKind;
use dray_proto::v1;

use crate::record::{DeliveryRecord, FileFailureKind, FileRecord, FileState};

/// Whether a file is worth another delivery: it failed, its outcome is unknown, it was too large, or the window was
/// closed.
pub(crate) fn can_resend(file: &FileRecord) -> bool {
    match file.state {
        FileState::Failed | FileState::Unknown => true,
        FileState::Rejected => matches!(
            file.error_kind,
            Some(FileFailureKind::Platform(
                ErrorKind::TooLarge | ErrorKind::WindowClosed
            ))
        ),
        FileState::Queued
        | FileState::Sending
        | FileState::Delivered
        | FileState::DeliveredAsLink
        | FileState::DeliveredAsPreview
        | FileState::Copied => false,
    }
}

/// The files that a resend of a delivery would send; `None` while its attempts continue, and when every file arrived.
pub(crate) fn resend_offer(record: &DeliveryRecord) -> Option<v1::ResendOffer> {
    if !record.finished {
        return None;
    }
    let has_file = |is_meant: &dyn Fn(&FileRecord) -> bool| record.files.iter().any(is_meant);
    if has_file(&can_resend) {
        return Some(v1::ResendOffer {
            all: false,
            may_repeat: has_file(&|file| file.state == FileState::Unknown),
        });
    }
    // The platform refused the others permanently. A person may have corrected the cause, such as a wrong chat.
    has_file(&|file| file.state == FileState::Rejected).then(|| v1::ResendOffer {
        all: true,
        may_repeat: has_file(&|file| file.state != FileState::Rejected),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected_file(kind: ErrorKind) -> FileRecord {
        FileRecord {
            error_kind: Some(kind.into()),
            ..FileRecord::in_state(FileState::Rejected)
        }
    }

    fn offer(files: &[FileRecord], finished: bool) -> Option<(bool, bool)> {
        let record = DeliveryRecord {
            files: files.to_vec(),
            finished,
            ..DeliveryRecord::default()
        };
        // The offer that callers see: the report has the offer of the record.
        let report = v1::DeliveryReport::from(&record);
        report.resend.map(|offer| (offer.all, offer.may_repeat))
    }

    #[test]
    fn delivered_and_unfinished_deliveries_offer_no_resend() {
        let file = FileRecord::in_state;
        assert_eq!(
            offer(&[file(FileState::Failed)], true),
            Some((false, false))
        );
        assert_eq!(
            offer(&[file(FileState::Unknown)], true),
            Some((false, true))
        );
        assert_eq!(offer(&[file(FileState::Unknown)], false), None);
        for state in [
            FileState::Delivered,
            FileState::DeliveredAsLink,
            FileState::DeliveredAsPreview,
            FileState::Copied,
        ] {
            assert_eq!(offer(&[file(state)], true), None, "{state:?}");
        }
        assert_eq!(offer(&[], true), None);
    }

    #[test]
    fn files_with_permanent_refusals_are_offered_only_together() {
        let refused = rejected_file(ErrorKind::NotFound);
        assert_eq!(
            offer(std::slice::from_ref(&refused), true),
            Some((true, false))
        );
        let delivered = FileRecord::in_state(FileState::Delivered);
        let both = [refused.clone(), delivered];
        assert_eq!(offer(&both, true), Some((true, true)));
        let large = rejected_file(ErrorKind::TooLarge);
        assert_eq!(offer(&[refused, large], true), Some((false, false)));
        let closed = rejected_file(ErrorKind::WindowClosed);
        assert_eq!(offer(&[closed], true), Some((false, false)));
    }
}
