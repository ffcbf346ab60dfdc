//! Egress: may this one request leave a sandbox, under the grant that is open now?
//!
//! Invariants: everything is decided on a parsed URL, hop by hop, and denied unless a rule admits it. In order:
//! https only, no user name, no address, the default port → deny sinks → exact host → method → path → query. A
//! grant is composed from the recipe and from reviewed profiles; nothing in a command or a request widens it.
//! What a denial says is for the record and its owner; the container is told only that it was denied.

mod credential;
mod denial;
mod grant;
mod headers;
mod hop;
mod host;
mod judge;
mod lfs;
mod path;
mod profile;
mod query;
mod redirect;
mod sink;

pub use credential::{CREDENTIAL_SECRETS, Credential, CredentialFault, Injected, inject};
pub use denial::{Action, Denial, act, event};
pub use grant::{Grant, GrantedHost, Source, compose, repository_grant};
pub use headers::{request_header_allowed, response_header_allowed};
pub use hop::{Admitted, Hop, Method, body_fits, decide};
pub use host::{HostPattern, HostPatternFault};
pub use judge::{Asked, judge};
pub use lfs::{MAX_LFS_BATCH_BYTES, wants_download_only};
pub use path::{PathFault, PathPattern, PathPatternFault};
pub use profile::{Inspect, Profile, Rule, profile, profile_names};
pub use query::Query;
pub use redirect::{MAX_REDIRECTS, Next, next};
