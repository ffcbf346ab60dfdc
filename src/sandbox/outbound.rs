//! What the object says to a request of the container's on its way out.
//!
//! Invariant: a hop is admitted only under the grant that this incarnation applied and has not closed, only for the
//! boot whose secret the interceptor carries, and only as `ringfence_core::egress` decides. Every refusal is counted
//! with its reason; the container is told none. A request that finds no grant though a fence is marked open comes from
//! a fence of an earlier incarnation: it is denied, and recovery begins.

use std::rc::Rc;

use ringfence_core::egress::{self, Action, Admitted, Asked, Denial, Inspect};
use ringfence_wire::contract::Done;
use ringfence_wire::internal::{AskedHop, EgressCall, HopAnswer, HopCredential, HopTerms, PassageEnd};
use subtle::ConstantTimeEq;
use worker::{Url, console_error};

use super::{Object, json};
use crate::sql::StoreError;

/// Not a rule's word: the object's own bound.
const TOO_MANY: &str = "too-many-passages";

impl Object {
    pub async fn egress(self: &Rc<Self>, call: EgressCall) -> String {
        match call {
            EgressCall::Open { generation, secret, hop, finished } => {
                self.finish_passages(&finished);
                json(&self.open_passage(generation, &secret, &hop))
            }
            EgressCall::Next { passage, hop } => json(&self.next_hop(&passage, &hop)),
            EgressCall::Hold { passage } => json(&self.gate.hold(&passage).await),
            EgressCall::Finished { passages } => {
                self.finish_passages(&passages);
                json(&Done {})
            }
            EgressCall::End { passage, end } => {
                self.end_passage(&passage, &end);
                json(&Done {})
            }
        }
    }

    fn open_passage(self: &Rc<Self>, generation: u64, secret: &str, hop: &AskedHop) -> HopAnswer {
        match self.is_this_boot(generation, secret) {
            Ok(true) => {}
            // Another Worker, or a container that is gone: none of this sandbox's denials.
            Ok(false) => return HopAnswer::Denied,
            Err(error) => {
                console_error!("egress: {error}");
                return HopAnswer::Denied;
            }
        }
        if self.gate.grant().is_none() && !self.recovered.get() {
            let (object, epoch) = (Rc::clone(self), self.epoch.get());
            self.later(async move {
                if let Err(refusal) = object.recovered(epoch).await {
                    console_error!("recovery: {}", refusal.message);
                }
            });
        }
        match self.decide(hop) {
            None => HopAnswer::Denied,
            Some(terms) => {
                let passage = uuid::Uuid::new_v4().to_string();
                if self.gate.begin(&passage) {
                    HopAnswer::Admitted { passage, terms }
                } else {
                    self.deny(hop, TOO_MANY);
                    HopAnswer::Denied
                }
            }
        }
    }

    fn next_hop(&self, passage: &str, hop: &AskedHop) -> HopAnswer {
        if !self.gate.knows(passage) {
            return HopAnswer::Denied;
        }
        match self.decide(hop) {
            Some(terms) => HopAnswer::Admitted { passage: passage.to_owned(), terms },
            None => HopAnswer::Denied,
        }
    }

    fn finish_passages(&self, passages: &[String]) {
        for passage in passages {
            self.end_passage(passage, &PassageEnd::Finished);
        }
    }

    fn end_passage(&self, passage: &str, end: &PassageEnd) {
        match end {
            PassageEnd::Finished => {}
            // The client may have seen a clean end: this is the record that it was not one.
            PassageEnd::Cut { hop } => self.deny(hop, Denial::Cut.name()),
            PassageEnd::Refused { hop, reason } => self.deny(hop, reason),
        }
        self.gate.end(passage);
    }

    fn is_this_boot(&self, generation: u64, secret: &str) -> Result<bool, StoreError> {
        let Some(head) = self.store.head()? else { return Ok(false) };
        let known = head.egress_secret.unwrap_or_default();
        let same = bool::from(known.as_bytes().ct_eq(secret.as_bytes()));
        Ok(same && !known.is_empty() && head.generation == generation)
    }

    /// The terms of an admitted hop; a refused one is counted.
    fn decide(&self, asked: &AskedHop) -> Option<HopTerms> {
        let grant = self.gate.grant().unwrap_or_default();
        let decision = egress::judge(
            &grant,
            &Asked {
                method: &asked.method,
                url: &asked.url,
                declared_bytes: asked.declared_bytes,
                upgrade: asked.upgrade,
            },
        );
        let terms = decision.as_ref().map(terms).unwrap_or_default();
        match egress::act(grant.position, &decision) {
            Action::Forward => Some(terms),
            Action::ForwardAndRecord(reason) => {
                self.deny(asked, &reason);
                Some(terms)
            }
            Action::Refuse(reason) => {
                self.deny(asked, reason);
                None
            }
        }
    }

    fn deny(&self, asked: &AskedHop, reason: &str) {
        let Ok(url) = Url::parse(&asked.url) else { return };
        if let Err(error) = self.store.count_denial(&egress::event(&asked.method, &url, reason)) {
            console_error!("egress: {error}");
        }
    }
}

/// What the rule that admits a hop holds it to. A position that only reports holds it to nothing.
fn terms(admitted: &Admitted<'_>) -> HopTerms {
    HopTerms {
        max_request_bytes: Some(admitted.rule.max_request_bytes),
        lfs_download_only: admitted.rule.inspect == Some(Inspect::LfsDownload),
        credential: admitted.credential.map(|credential| HopCredential {
            secret_name: credential.secret_name.clone(),
            host: credential.host.as_str().to_owned(),
            header_template: credential.header_template.clone(),
        }),
    }
}
