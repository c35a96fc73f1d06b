//! The lists of extension points of Drayage: chat platforms and kinds of sandboxes.
//!
//! Each list is written only here. Queues, accounts of the bus, metric labels, configuration and pages are derived from
//! it or compared with it by a test. `cargo xtask new` adds a line. What it does not do: describe how a platform or a
//! sandbox works; the crate of the same name does that.

/// Declares an enum together with the name of each variant and the list of all.
macro_rules! named_kinds {
    ($(#[$about:meta])* pub enum $kind:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind {
            $($(#[$doc])* $variant,)+
        }

        impl $kind {
            /// All kinds, in alphabetical order of their names.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name: lower case, the same in configuration, addresses, subjects and metrics.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The kind with this name; `None` for a name that is not in the list.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
            }
        }
    };
}

named_kinds! {
    /// A chat platform or other service where people read messages. Each has its own queue of deliveries.
    pub enum PlatformKind {
        /// A directory of this machine, for the person who runs the program.
        Cli = "cli",
        /// Discord, by a bot.
        Discord = "discord",
        /// E-mail over SMTP and IMAP.
        Email = "email",
        /// A user on a Matrix homeserver.
        Matrix = "matrix",
        /// Slack, by an app in one workspace.
        Slack = "slack",
        /// Telegram, by the Bot API.
        Telegram = "telegram",
        /// Programs of the operator, by signed requests.
        Webhook = "webhook",
        /// `WhatsApp`, by the Cloud API or a local bridge.
        Whatsapp = "whatsapp",
    }
}

named_kinds! {
    /// A kind of sandbox: the part of a sandbox address before the colon.
    pub enum BackendKind {
        /// Instances of Apptainer or Singularity.
        Apptainer = "apptainer",
        /// Sandboxes of Daytona.
        Daytona = "daytona",
        /// Containers of a Docker Engine.
        Docker = "docker",
        /// Sandboxes of E2B.
        E2b = "e2b",
        /// Anything that a command line leads into.
        Exec = "exec",
        /// Containers of a Kubernetes cluster.
        Kubernetes = "kubernetes",
        /// Directories of this host.
        Local = "local",
        /// Sandboxes of Modal.
        Modal = "modal",
        /// Hosts that are reached over SSH.
        Ssh = "ssh",
    }
}

impl BackendKind {
    /// Whether it can be used without a key or a cluster of the operator. These kinds are set up by default.
    pub const fn is_default(self) -> bool {
        matches!(
            self,
            Self::Apptainer | Self::Docker | Self::Exec | Self::Local | Self::Ssh
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::is_subject_token;

    fn check_names(names: &[&str]) {
        assert!(names.is_sorted(), "{names:?}");
        for name in names {
            assert!(is_subject_token(name), "{name} cannot be part of a subject");
        }
    }

    #[test]
    fn names_are_sorted_subject_tokens_and_found_again() {
        let platforms: Vec<_> = PlatformKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let backends: Vec<_> = BackendKind::ALL.iter().map(|kind| kind.as_str()).collect();
        check_names(&platforms);
        check_names(&backends);
        assert_eq!(PlatformKind::from_name("slack"), Some(PlatformKind::Slack));
        assert_eq!(BackendKind::from_name("E2B"), None);
    }
}
