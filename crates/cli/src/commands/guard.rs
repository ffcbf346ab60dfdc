//! `ringfence guard`: internal; see [`crate::stack::guard`].

use crate::print;
use crate::stack::guard::{self, StopSignal};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[arg(long, value_enum)]
    stop_signal: StopSignal,
    #[arg(long)]
    grace_ms: u64,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let Some((program, rest)) = arguments.program.split_first() else { return ExitCode::from(2) };
    match guard::run(arguments.stop_signal, Duration::from_millis(arguments.grace_ms), program, rest) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            print::warn(format_args!("ringfence guard: {program}: {error}"));
            ExitCode::FAILURE
        }
    }
}
