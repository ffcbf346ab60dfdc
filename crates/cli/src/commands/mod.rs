//! One file per command: its arguments, its help, and what it does.

pub(crate) mod abort;
pub(crate) mod demo;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod engine;
pub(crate) mod guard;
pub(crate) mod logs;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod stop;
