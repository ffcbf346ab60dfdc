//! `ringfence engine`: the local engine. It answers the part of the Docker API that workerd speaks and boots each
//! container as a supervisor in Linux namespaces. No Docker, no image pull.
//!
//! It owns every container it boots, and nothing outlives it. A binary that embeds it must give three of its
//! invocations to this crate before it starts any thread: [`container_init`], [`namespace_probe`] and, when it is
//! called `docker`, [`docker_cli`].

mod calls;
mod config;
mod container;
mod control;
mod docker_api;
mod docker_cli;
mod doctor;
mod engine;
mod faults;
mod ingress;
mod names;
mod namespace;
mod network;
mod rewound;
mod run;
mod state;
mod sys;

pub use config::{BindError, BindReadOnly, Bounds, EngineConfig};
pub use docker_cli::docker_cli;
pub use doctor::{Fact, FactState, NoUserNamespace, PROBE_SUBCOMMAND, facts, namespace_probe};
pub use namespace::keeper::container_init;
pub use namespace::protocol::INIT_SUBCOMMAND;
pub use run::{RunError, run};

/// What meets a container's bytes first, open to the fuzz targets and to nothing else.
#[doc(hidden)]
pub mod parsers {
    pub use crate::network::classify::{Speaks, classify};
    pub use crate::network::dns::{Names, answer};
}
