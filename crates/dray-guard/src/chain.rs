//! The state of a redirect chain (section 12).
//!
//! Every target passes syntax, scheme, both allowlists, port and name here (I-3, P-5); its addresses are judged by
//! [`crate::judge`] before anything is connected. This module does not read responses: it gets the status and the
//! `Location` fields.

use std::sync::Arc;

use crate::canon::CanonicalUrl;
use crate::judge::{HopContext, Network, PinnedAddresses};
use crate::policy::{EffectivePolicy, HostGrant};
use crate::reason::Code;
use crate::steps::{PolicyStep, RuleOwner, StepObserver};

/// One fetch and its redirects: the policy, the current URL, and the networks of the last hops.
#[derive(Clone, Debug)]
pub struct Chain {
    policy: Arc<EffectivePolicy>,
    current: CanonicalUrl,
    followed: u8,
    /// Network of the hop before the current one.
    previous_network: Option<Network>,
    /// Network of the current hop, once it was judged.
    current_network: Option<Network>,
}

/// The consequence of a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// The response is final, with any status.
    Answer,
    /// A redirect was accepted: fetch [`Chain::current`].
    Follow,
}

/// A URL that may not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hop {hop}: {code}")]
pub struct RefusedUrl {
    /// The reason why it is refused; the agent gets the message of this code.
    pub code: Code,
    /// The hop that was refused: 0 for the agent's own URL.
    pub hop: u32,
    /// The refused URL, if it could be read. For the audit event only: an agent does not see a hostile redirect.
    pub target: Option<CanonicalUrl>,
}

impl From<RefusedUrl> for Code {
    fn from(refused: RefusedUrl) -> Self {
        refused.code
    }
}

/// Whether a status redirects. 300, 304, 305 and 306 do not.
pub const fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

impl Chain {
    /// Begins with the URL that an agent wrote.
    ///
    /// # Errors
    /// The first failing step of 3.1 that can be decided without DNS.
    pub fn start(text: &str, policy: Arc<EffectivePolicy>) -> Result<Self, RefusedUrl> {
        Self::observed(text, policy, &mut ())
    }

    /// Like [`Self::start`], with an observer of the steps.
    ///
    /// # Errors
    /// Those of [`Self::start`].
    pub fn observed(
        text: &str,
        policy: Arc<EffectivePolicy>,
        steps: &mut dyn StepObserver,
    ) -> Result<Self, RefusedUrl> {
        Self::of_parsed(CanonicalUrl::parse(text), policy, steps)
    }

    /// Like [`Self::observed`], with the result of [`CanonicalUrl::parse`] in place of the text.
    ///
    /// # Errors
    /// Those of [`Self::start`].
    pub fn of_parsed(
        parsed: Result<CanonicalUrl, Code>,
        policy: Arc<EffectivePolicy>,
        steps: &mut dyn StepObserver,
    ) -> Result<Self, RefusedUrl> {
        let verdict = parsed.as_ref().map(|_| ()).map_err(|code| *code);
        steps
            .observe(PolicyStep::Url, RuleOwner::BuiltIn, verdict)
            .map_err(|code| RefusedUrl {
                code,
                hop: 0,
                target: None,
            })?;
        let current = check_target(&policy, parsed, 0, steps)?;
        Ok(Self {
            policy,
            current,
            followed: 0,
            previous_network: None,
            current_network: None,
        })
    }

    /// The URL to fetch now; it passed every check that needs no DNS.
    pub const fn current(&self) -> &CanonicalUrl {
        &self.current
    }

    /// Number of redirects that were followed.
    pub const fn followed(&self) -> u32 {
        self.followed as u32
    }

    /// Number of the current hop; 0 for the agent's own URL.
    pub const fn hop(&self) -> u32 {
        self.followed()
    }

    /// The policy that applies to the whole chain (C-4, X-5).
    pub const fn policy(&self) -> &Arc<EffectivePolicy> {
        &self.policy
    }

    /// Adds a host that a person has allowed for the session, for the current and all further hops.
    pub fn grant(&mut self, grant: HostGrant) {
        Arc::make_mut(&mut self.policy).grant(grant);
    }

    /// The facts about the current hop that the judge needs.
    pub fn context(&self) -> HopContext {
        HopContext {
            previous: self.previous_network,
            admin_listed: self.policy.is_admin_listed(&self.current),
        }
    }

    /// A separate chain for the robots.txt of the current host. The rules of the policy files allowed the current URL;
    /// their conditions for its path and type do not apply to the file. The caller asks them about each host to which
    /// the file redirects.
    ///
    /// # Errors
    /// No error for a URL that was accepted.
    pub fn for_robots(&self) -> Result<Self, Code> {
        Ok(Self {
            policy: Arc::new(EffectivePolicy::clone(&self.policy).with_rules(None)),
            current: self.current.join("/robots.txt")?,
            followed: 0,
            // The network is kept, because a page that redirects into an opened range must not make this request either
            // (8.6).
            previous_network: self.previous_network,
            current_network: None,
        })
    }

    /// Records the network of the current hop. A hop that is never recorded counts as public, the stricter case.
    pub fn record_network(&mut self, pinned: &PinnedAddresses) {
        // The network is that of the whole DNS response: all of its addresses are in the same network (8.6).
        self.current_network = Some(pinned.network());
    }

    /// Follows a redirect, if the response is one: `status` and the raw values of all `Location` fields are from its
    /// head.
    ///
    /// # Errors
    /// `redirect_invalid`, `redirect_limit`, `redirect_downgrade`, or the code for which the target itself is refused.
    pub fn on_redirect(&mut self, status: u16, locations: &[&[u8]]) -> Result<NextHop, RefusedUrl> {
        if !is_redirect(status) {
            return Ok(NextHop::Answer);
        }
        let hop = self.hop() + 1;
        let refuse = |code| RefusedUrl {
            code,
            hop,
            target: None,
        };
        let reference = single_location(locations).ok_or(refuse(Code::RedirectInvalid))?;
        // The limit counts redirects, so five allow six requests. It also ends redirect loops, so no target is
        // remembered.
        if self.followed >= self.policy.admin().max_redirects.get() {
            return Err(refuse(Code::RedirectLimit));
        }
        let target = self.current.join(reference).map_err(|code| {
            // The agent's own URL is valid, so its message must not say otherwise.
            refuse(if code == Code::InvalidUrl {
                Code::RedirectInvalid
            } else {
                code
            })
        })?;
        let next = self.check_redirect_target(target, hop)?;
        self.followed += 1;
        self.current = next;
        // A hop without a record counts as public, the stricter case for the pivot rule of 8.6.
        self.previous_network = Some(self.current_network.take().unwrap_or(Network::Public));
        Ok(NextHop::Follow)
    }

    /// Applies the downgrade rule, then everything that the agent's own URL had to pass (P-5).
    fn check_redirect_target(
        &self,
        target: CanonicalUrl,
        hop: u32,
    ) -> Result<CanonicalUrl, RefusedUrl> {
        let admin = self.policy.admin();
        let is_downgrade = self.current.https() && !target.https();
        // With `https_only` the scheme check gives the reason: section 12 applies section 5 first.
        if is_downgrade && !admin.https_only && !admin.allow_downgrade {
            return Err(RefusedUrl {
                code: Code::RedirectDowngrade,
                hop,
                target: Some(target),
            });
        }
        check_target(&self.policy, Ok(target), hop, &mut ())
    }
}

fn check_target(
    policy: &EffectivePolicy,
    url: Result<CanonicalUrl, Code>,
    hop: u32,
    steps: &mut dyn StepObserver,
) -> Result<CanonicalUrl, RefusedUrl> {
    let url = url.map_err(|code| RefusedUrl {
        code,
        hop,
        target: None,
    })?;
    match policy.check_observed(&url, steps) {
        Ok(()) => Ok(url),
        Err(code) => Err(RefusedUrl {
            code,
            hop,
            target: Some(url),
        }),
    }
}

/// The one `Location`: present, not empty, UTF-8, and the same in every field.
fn single_location<'a>(locations: &[&'a [u8]]) -> Option<&'a str> {
    let (first, others) = locations.split_first()?;
    // Parsers differ on which of several fields counts; equal ones leave no choice.
    if first.is_empty() || others.iter().any(|other| other != first) {
        return None;
    }
    std::str::from_utf8(first).ok()
}

#[cfg(test)]
mod tests;
