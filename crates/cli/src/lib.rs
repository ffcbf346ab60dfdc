//! `ringfence` as a library: the command line, and the local [`stack`] that the command line and the
//! end-to-end tests share.

pub mod cli;
mod commands;
mod connect;
pub mod exit;
#[cfg(test)]
mod fake;
mod http;
mod print;
pub mod stack;
mod terminal;
